#include "daemon/refuser.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include "shared/base/json.h"

namespace plimsoll {
namespace {

constexpr int kRetryAfter_s = 30;
constexpr int kReadsMax = 64;  // of one client at a time

// Whether it has closed, or its connection is broken.
bool has_ended(int fd) {
  std::array<char, 16 * 1024> taken;
  for (int i = 0; i < kReadsMax; ++i) {
    const ssize_t got = ::recv(fd, taken.data(), taken.size(), MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    return got == 0 || errno != EAGAIN;
  }
  return false;
}

}  // namespace

bool is_final(int exit_code) {
  constexpr int kDoesNotFit = 3;
  constexpr int kBadConfiguration = 78;
  return exit_code == kDoesNotFit || exit_code == kBadConfiguration;
}

std::string refusal_text(const std::string& reason) {
  const Json body = Json::object({{"error", Json::object({{"message", reason},
                                                          {"type", "server_error"},
                                                          {"param", nullptr},
                                                          {"code", "unavailable"}})}});
  const std::string text = dump_json(body);
  return fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: {}\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      kRetryAfter_s, text.size(), text);
}

void Refuser::serve(int listener, const std::string& reason, TimePoint now) {
  const std::string text = refusal_text(reason);
  while (has_room()) {
    UniqueFd client(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!client && errno != EAGAIN) again_at_ = now + kPause;  // who waits there is still there
    if (!client) return;
    // It fits into an empty socket. One that is closed with words unread would be reset, and its
    // client might never see the answer.
    (void)::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
    (void)::shutdown(client.get(), SHUT_WR);
    clients_.push_back({std::move(client), now + kReadTime});
  }
}

std::optional<TimePoint> Refuser::next_deadline() const {
  if (clients_.empty()) return again_at_;
  return std::min(clients_.front().until, again_at_.value_or(clients_.front().until));
}

void Refuser::look(TimePoint now) {
  if (again_at_ && now >= *again_at_) again_at_.reset();
  std::erase_if(clients_,
                [now](const Client& one) { return now >= one.until || has_ended(one.fd.get()); });
}

void Refuser::finish(int listener, const std::string& reason, Duration longest) {
  const TimePoint end = now() + longest;
  for (;;) {
    serve(listener, reason, now());
    look(now());
    const Duration left = std::min(end, next_deadline().value_or(end)) - now();
    if (clients_.empty() || now() >= end) return;
    // One that is full would come back at once for those that it has no room for.
    const int more = has_room() ? listener : -1;
    std::vector<pollfd> wanted = {{.fd = more, .events = POLLIN, .revents = 0}};
    for (const int fd : descriptors()) {
      wanted.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    const auto left_ms = std::chrono::ceil<milliseconds>(std::max(left, Duration(0))).count();
    (void)::poll(wanted.data(), wanted.size(), static_cast<int>(left_ms));
  }
}

std::vector<int> Refuser::descriptors() const {
  std::vector<int> all;
  for (const Client& client : clients_) all.push_back(client.fd.get());
  return all;
}

}  // namespace plimsoll
