// RawHttp: a client's socket on loopback, byte for byte, for tests of servers.
//
// Every wait has a deadline; the test fails at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "shared/base/unique_fd.h"

namespace plimsoll {

struct RawAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks put together
};

class RawHttp {
 public:
  explicit RawHttp(std::uint16_t port);

  void send(std::string_view bytes);
  void post(std::string_view path, std::string_view body, std::string_view headers = "");
  void get(std::string_view path);
  // The next whole answer. `head_only`: to a HEAD.
  RawAnswer answer(bool head_only = false);
  // Reads until the text has come, and gives everything up to its end.
  std::string read_until(std::string_view text);
  // What comes until the other side closes.
  std::string read_to_end();
  bool is_closed();  // waits for the end
  void close() { socket_.reset(); }
  void reset();  // closes with RST
  // A small window, so that a server's output soon finds no room. REQUIRES: before any answer.
  void receive_slowly();

 private:
  bool read_some();
  std::string take(std::size_t bytes);

  UniqueFd socket_;
  std::string in_;
};

// A listening socket on a free loopback port.
struct LoopbackListener {
  UniqueFd socket;
  std::uint16_t port = 0;
};
LoopbackListener listen_on_loopback();

}  // namespace plimsoll
