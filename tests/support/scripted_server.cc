#include "tests/support/scripted_server.h"

#include <algorithm>
#include <cstdlib>

#include <netinet/in.h>
#include <sys/socket.h>

#include "shared/base/check.h"

namespace plimsoll {
namespace {

// Up to the end of the body that Content-Length tells of.
std::string receive_request(int fd) {
  std::string text;
  std::size_t wanted = std::string::npos;
  char piece[4096];
  while (text.size() < wanted) {
    const ssize_t got = ::recv(fd, piece, sizeof piece, 0);
    if (got <= 0) break;
    text.append(piece, static_cast<std::size_t>(got));
    const std::size_t head = text.find("\r\n\r\n");
    if (head == std::string::npos) continue;
    const std::size_t length = text.find("Content-Length: ");
    wanted = head + 4 + (length < head ? std::strtoul(text.c_str() + length + 16, nullptr, 10) : 0);
  }
  return text;
}

}  // namespace

ScriptedServer::ScriptedServer(std::vector<Script> scripts)
    : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  CHECK(::bind(listener_.get(), plain, length) == 0);
  CHECK(::listen(listener_.get(), 8) == 0);
  CHECK(::getsockname(listener_.get(), plain, &length) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this, scripts = std::move(scripts)] { serve(scripts); });
}

ScriptedServer::~ScriptedServer() {
  ::shutdown(listener_.get(), SHUT_RDWR);  // a thread that still waits to accept gives up
  if (thread_.joinable()) thread_.join();
}

std::string ScriptedServer::url(const std::string& target) const {
  return "http://127.0.0.1:" + std::to_string(port_) + target;
}

const std::vector<std::string>& ScriptedServer::requests() {
  if (thread_.joinable()) thread_.join();
  return requests_;
}

void ScriptedServer::serve(const std::vector<Script>& scripts) {
  for (const Script& script : scripts) {
    const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) return;
    requests_.push_back(receive_request(client.get()));
    for (const std::string& piece : script.pieces) {
      if (::send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
    }
    char byte = 0;
    if (script.stays_open) (void)::recv(client.get(), &byte, 1, 0);
  }
}

}  // namespace plimsoll
