// HttpClient: one HTTP/1.1 exchange with a server, blocking, with a deadline and bounds.
//
// For the CLI and tools on the same machine or a trusted network: no TLS, no redirects, no reuse.
#pragma once

#include <string>
#include <string_view>

#include "shared/base/clock.h"
#include "shared/base/event_reader.h"
#include "shared/base/result.h"

namespace plimsoll {

struct HttpUrl {
  std::string host;
  std::string port;
  std::string target;  // "/v1/models?x=1", at least "/"
};
// Errors: Code::invalid; only http://HOST[:PORT][/...] is understood, IPv6 in brackets.
Result<HttpUrl> parse_http_url(std::string_view url);

struct HttpRequest {
  std::string method = "GET";
  std::string url = {};
  std::string json = {};  // the body, sent as application/json where it is not empty
  // Of the whole exchange; of a stream: until its head, and each silence within it.
  Duration timeout = seconds(30);
};

struct HttpAnswer {
  int status = 0;
  std::string content_type;
  std::string body;
};

constexpr std::size_t kHttpBodyBytesMax = 64 * 1024 * 1024;
constexpr std::size_t kHttpEventBytesMax = 4 * 1024 * 1024;

// Any status is an answer. Errors: unavailable (nobody listens, connection lost), timed_out,
// invalid (a bad URL, an answer that is no HTTP or too long).
Result<HttpAnswer> http_exchange(const HttpRequest& request);

// Hands over each server-sent event as it arrives; an answer that is no event stream (an error's
// JSON) comes back with its body. Ends early, without an error, where `on_event` returns false.
Result<HttpAnswer> http_stream(const HttpRequest& request, EventReader::OnEvent on_event);

}  // namespace plimsoll
