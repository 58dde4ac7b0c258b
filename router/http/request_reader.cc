#include "router/http/request_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/core.h>

#include "shared/base/check.h"
#include "shared/base/shown_text.h"
#include "shared/base/text.h"

namespace plimsoll {

namespace http = boost::beast::http;

struct RequestReader::Parser {
  RequestLimits limits;
  http::request_parser<http::string_body> parser;
  bool head_seen = false;
  std::optional<ApiError> refusal;
};

namespace {

ApiError refuse(int status, std::string code, std::string message) {
  ApiError error;
  error.status = status;
  error.code = std::move(code);
  error.message = std::move(message);
  return error;
}

ApiError refusal_of(const boost::system::error_code& error, const RequestLimits& limits) {
  if (error == http::error::header_limit) {
    return refuse(431, "header_too_large",
                  fmt::format("the request's header is over {} bytes", limits.header_bytes_max));
  }
  if (error == http::error::body_limit) {
    return refuse(413, "body_too_large",
                  fmt::format("the request's body is over {} bytes", limits.body_bytes_max));
  }
  if (error == http::error::bad_version) {
    return refuse(505, "bad_http_version", "only HTTP/1.0 and HTTP/1.1 are spoken here");
  }
  return refuse(400, "bad_http", "this is no HTTP request: " + error.message());
}

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

// The least that can end a chunked body ("0\r\n\r\n"); with less at hand the parser is not asked,
// because it takes for granted that the rest of an unfinished last chunk has this much.
constexpr std::size_t kChunkTailBytes = 5;
constexpr std::size_t kNameShownMax = 64;

// What Beast lets pass and we do not.
std::optional<ApiError> check_head(const http::request<http::string_body>& request) {
  if (request.version() != 10 && request.version() != 11) {
    return refusal_of(http::error::bad_version, {});
  }
  if (request.version() == 11 && request.count(http::field::host) != 1) {
    return refuse(400, "bad_http", "an HTTP/1.1 request has exactly one Host header");
  }
  const auto encoding = request.find(http::field::transfer_encoding);
  if (encoding != request.end() && lower(view(encoding->value())) != "chunked") {
    return refuse(501, "bad_transfer_encoding", "the only transfer encoding here is chunked");
  }
  if (request.count(http::field::transfer_encoding) > 1) {
    return refuse(400, "bad_http", "Transfer-Encoding is given twice");
  }
  const std::string coding = lower(view(request[http::field::content_encoding]));
  if (!coding.empty() && coding != "identity") {
    return refuse(415, "unsupported_content_encoding",
                  fmt::format("the body is encoded as {}; send it as it is, without a "
                              "Content-Encoding",
                              shown(coding.substr(0, kNameShownMax))));
  }
  if (request.method() == http::verb::connect) {
    return refuse(405, "method_not_allowed", "this is no proxy: CONNECT is not a method here");
  }
  return std::nullopt;
}

// A target may be a whole URL, as sent to a proxy (RFC 9112, 3.2.2): then from its path on.
std::string_view origin_form(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (lower(target.substr(0, scheme.size())) != scheme) continue;
    const std::size_t end = target.find_first_of("/?", scheme.size());
    return target.substr(std::min(end, target.size()));
  }
  return target;
}

}  // namespace

RequestReader::RequestReader(RequestLimits limits) : parser_(std::make_unique<Parser>()) {
  parser_->limits = limits;
  parser_->parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes_max));
  parser_->parser.body_limit(limits.body_bytes_max);
  parser_->parser.eager(true);
}

RequestReader::RequestReader(RequestReader&&) noexcept = default;
RequestReader& RequestReader::operator=(RequestReader&&) noexcept = default;
RequestReader::~RequestReader() = default;

std::size_t RequestReader::feed(std::string_view bytes) {
  Parser& state = *parser_;
  std::size_t taken = 0;
  while (taken < bytes.size() && !state.refusal && !state.parser.is_done()) {
    boost::system::error_code error;
    const std::string_view rest = bytes.substr(taken);
    const bool chunked = state.head_seen && state.parser.chunked();
    if (chunked && rest.size() < kChunkTailBytes) break;
    const std::size_t used =
        state.parser.put(boost::asio::const_buffer(rest.data(), rest.size()), error);
    taken += used;
    if (!state.head_seen && state.parser.is_header_done()) {
      state.head_seen = true;
      state.refusal = check_head(state.parser.get());
    }
    if (error == http::error::need_more) {
      if (used > 0) continue;
      // Chunk extensions and trailers are of no use here; they are bounded as the header is.
      if (state.head_seen && rest.size() > state.limits.header_bytes_max && !state.refusal) {
        state.refusal = refusal_of(http::error::header_limit, state.limits);
      }
      break;
    }
    if (error && !state.refusal) state.refusal = refusal_of(error, state.limits);
    if (used == 0) break;
  }
  return taken;
}

RequestReader::State RequestReader::state() const {
  if (parser_->refusal) return State::failed;
  if (parser_->parser.is_done()) return State::complete;
  return parser_->parser.is_header_done() ? State::body : State::header;
}

std::size_t RequestReader::body_bytes() const { return parser_->parser.get().body().size(); }

bool RequestReader::wants_continue() const {
  if (state() != State::body || http_1_0()) return false;
  const auto& request = parser_->parser.get();
  return lower(view(request[http::field::expect])) == "100-continue";
}

bool RequestReader::keep_alive() const {
  return parser_->parser.is_header_done() && !parser_->refusal && parser_->parser.keep_alive();
}

bool RequestReader::http_1_0() const {
  return parser_->parser.is_header_done() && parser_->parser.get().version() == 10;
}

bool RequestReader::is_head() const {
  return parser_->parser.is_header_done() && parser_->parser.get().method() == http::verb::head;
}

const ApiError& RequestReader::refusal() const {
  CHECK(parser_->refusal);
  return *parser_->refusal;
}

HttpRequest RequestReader::take() {
  CHECK(state() == State::complete);
  http::request<http::string_body> request = parser_->parser.release();
  HttpRequest out;
  out.method = view(request.method_string());
  const std::string_view target = origin_form(view(request.target()));
  const std::size_t question = target.find('?');
  out.path = target.substr(0, question);
  if (out.path.empty()) out.path = "/";
  if (question != std::string_view::npos) out.query = target.substr(question + 1);
  out.content_type = view(request[http::field::content_type]);
  const std::string_view id = view(request["X-Request-Id"]);
  if (is_harmless_request_id(id)) out.request_id = id;
  out.body = std::move(request.body());
  return out;
}

}  // namespace plimsoll
