// RequestReader: bytes of a connection into one HTTP/1.x request, with every limit. Pure: it never
// waits, and any cut of the same bytes gives the same request.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "router/api/api_error.h"
#include "router/http/message.h"

namespace plimsoll {

struct RequestLimits {
  std::size_t header_bytes_max = 16 * 1024;
  std::size_t body_bytes_max = 32 * 1024 * 1024;
};

class RequestReader {
 public:
  enum class State { header, body, complete, failed };

  explicit RequestReader(RequestLimits limits);
  RequestReader(RequestReader&&) noexcept;
  RequestReader& operator=(RequestReader&&) noexcept;
  ~RequestReader();

  // Takes as much of `bytes` as belongs to this request (and can be used yet) and returns how much;
  // what is left, and more, must come with the next call.
  std::size_t feed(std::string_view bytes);

  State state() const;
  std::size_t body_bytes() const;  // so far
  // The client waits for "100 Continue" before it sends the body.
  bool wants_continue() const;
  bool keep_alive() const;
  bool http_1_0() const;
  bool is_head() const;
  // REQUIRES: state() is failed. The connection cannot go on after it.
  const ApiError& refusal() const;
  // REQUIRES: state() is complete. The request id is empty where the client sent none that is
  // harmless.
  HttpRequest take();

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace plimsoll
