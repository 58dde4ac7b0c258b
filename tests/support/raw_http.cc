#include "tests/support/raw_http.h"

#include <array>
#include <cerrno>

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr int kWaitMaxMs = 10'000;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

}  // namespace

RawHttp::RawHttp(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = loopback(port);
  EXPECT_EQ(::connect(socket_.get(), generic(address), sizeof(address)), 0) << "port " << port;
}

void RawHttp::send(std::string_view bytes) {
  while (!bytes.empty()) {
    pollfd one{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&one, 1, kWaitMaxMs) <= 0) {
      ADD_FAILURE() << "the server takes no more bytes";
      return;
    }
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return;  // refused half way, as a rule: the answer tells
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void RawHttp::post(std::string_view path, std::string_view body, std::string_view headers) {
  send(
      fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{}"
                  "Content-Length: {}\r\n\r\n{}",
                  path, headers, body.size(), body));
}

void RawHttp::get(std::string_view path) {
  send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", path));
}

bool RawHttp::read_some() {
  pollfd one{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&one, 1, kWaitMaxMs) <= 0) {
    ADD_FAILURE() << "nothing came for 10 s after: " << in_;
    return false;
  }
  std::array<char, 16384> buffer{};
  const ssize_t bytes = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
  if (bytes <= 0) return false;
  in_.append(buffer.data(), static_cast<std::size_t>(bytes));
  return true;
}

std::string RawHttp::take(std::size_t bytes) {
  while (in_.size() < bytes && read_some()) {
  }
  EXPECT_GE(in_.size(), bytes) << "the connection ended early";
  std::string out = in_.substr(0, bytes);
  in_.erase(0, out.size());
  return out;
}

std::string RawHttp::read_until(std::string_view text) {
  while (in_.find(text) == std::string::npos) {
    if (read_some()) continue;
    ADD_FAILURE() << "\"" << text << "\" never came; instead: " << in_;
    return std::exchange(in_, {});
  }
  return take(in_.find(text) + text.size());
}

RawAnswer RawHttp::answer(bool head_only) {
  RawAnswer out;
  const std::string head = read_until("\r\n\r\n");
  for (std::string_view line : split(head, '\n')) {
    line = trim(line);
    if (line.starts_with("HTTP/1.")) {
      out.status = std::atoi(std::string(line.substr(9, 3)).c_str());
    } else if (const std::size_t colon = line.find(':'); colon != std::string_view::npos) {
      out.headers[lower(line.substr(0, colon))] = trim(line.substr(colon + 1));
    }
  }
  if (out.status == 100 || out.status == 204 || head_only) return out;
  if (out.headers.contains("transfer-encoding")) {
    for (;;) {
      const std::size_t size = std::stoul(read_until("\r\n"), nullptr, 16);
      out.body += take(size);
      take(2);
      if (size == 0) return out;
    }
  }
  if (out.headers.contains("content-length")) {
    out.body = take(std::stoul(out.headers["content-length"]));
  } else {
    out.body = read_to_end();
  }
  return out;
}

std::string RawHttp::read_to_end() {
  while (read_some()) {
  }
  return std::exchange(in_, {});
}

bool RawHttp::is_closed() { return read_to_end().empty(); }

void RawHttp::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  socket_.reset();
}

void RawHttp::receive_slowly() {
  const int bytes = 4096;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

LoopbackListener listen_on_loopback() {
  LoopbackListener out;
  out.socket.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  EXPECT_EQ(::bind(out.socket.get(), generic(address), sizeof(address)), 0);
  EXPECT_EQ(::listen(out.socket.get(), 128), 0);
  socklen_t length = sizeof(address);
  EXPECT_EQ(::getsockname(out.socket.get(), generic(address), &length), 0);
  out.port = ntohs(address.sin_port);
  return out;
}

}  // namespace plimsoll
