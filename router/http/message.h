// HttpMessage: a request as endpoints see it, a response, and a response's bytes on the wire.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll {

// One request and its answer on one connection; never reused in the router's life.
using ExchangeId = std::uint64_t;

struct HttpRequest {
  std::string method;
  std::string path;  // as sent: no decoding, so that no spelling of a path means another one
  std::string query;
  std::string content_type;
  std::string request_id;  // X-Request-Id: the client's where it is harmless, else ours
  std::string body;
  std::int64_t received = 0;  // when the last byte came, seconds since the epoch
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

struct ResponseFraming {
  bool head_only = false;  // the answer to HEAD
  bool keep_alive = true;
  bool http_1_0 = false;
  std::string date;  // "Tue, 15 Nov 1994 08:12:31 GMT"
};

const char* status_text(int status);
// A whole response: head and body.
std::string response_bytes(const HttpResponse& response, const ResponseFraming& framing);
// The head of a body of unknown length: chunked, or until the end of the connection for HTTP/1.0.
std::string stream_head_bytes(const HttpResponse& response, const ResponseFraming& framing);
// A piece of such a body; `end_of_stream_bytes` closes it.
std::string chunk_bytes(std::string_view data, const ResponseFraming& framing);
std::string_view end_of_stream_bytes(const ResponseFraming& framing);
// The Date header's format.
std::string http_date(std::int64_t seconds_since_epoch);

// A client's id may be repeated in headers and logs only if it is short and plain.
bool is_harmless_request_id(std::string_view id);
// %41 becomes A; a broken escape stays as it is.
std::string percent_decode(std::string_view text);

}  // namespace plimsoll
