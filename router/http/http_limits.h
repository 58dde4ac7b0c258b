// HttpLimits: the bounds of the HTTP side, in one place.
#pragma once

#include <cstddef>

#include "router/http/request_reader.h"
#include "shared/base/clock.h"

namespace plimsoll {

struct HttpLimits {
  RequestLimits request;
  std::size_t connections_max = 1024;
  std::size_t bodies_bytes_max = 256 * 1024 * 1024;     // of all requests that are being read
  std::size_t pipelined_bytes_max = 64 * 1024;          // read ahead of the current answer
  std::size_t stream_bytes_max = 1024 * 1024;           // of a stream that its client does not read
  std::size_t linger_bytes_max = std::size_t{2} << 30;  // read and dropped after a refusal
  Duration header_time = seconds(15);                   // from its first byte to its last
  Duration body_silence = seconds(30);                  // without any byte of a body
  Duration body_time = seconds(300);                    // for a whole body
  Duration idle_time = seconds(75);                     // between requests
  Duration write_silence = seconds(60);                 // with output that the client does not take
  Duration linger_time = seconds(2);                    // without any byte of what is dropped
  Duration linger_time_max = seconds(30);               // for all of it
  Duration last_request_time = seconds(1);              // see HttpServer::stop_accepting
  Duration last_answer_time = milliseconds(200);        // see HttpServer::finish
  Duration sweep_every = std::chrono::milliseconds(500);  // how exact those times are
};

}  // namespace plimsoll
