#include "shared/control/descriptors.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::size_t kTagBytesMax = 64;
// One more than is ever sent, so that a sender of several is seen and its descriptors are closed.
constexpr std::size_t kFdsMax = 2;

std::string system_error() { return std::strerror(errno); }

Status wait_readable(int socket, Duration timeout) {
  const TimePoint deadline = now() + timeout;
  pollfd wanted{.fd = socket, .events = POLLIN, .revents = 0};
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - now());
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready > 0) return {};
    if (ready == 0) return timed_out("no descriptor arrived from the other process in time");
    if (errno != EINTR) return internal_error("wait for a descriptor: " + system_error());
  }
}

}  // namespace

Result<SocketPair> descriptor_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return unavailable("make a socket pair: " + system_error());
  }
  return SocketPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Status send_descriptor(int socket, const std::string& tag, int fd) {
  if (tag.empty() || tag.size() > kTagBytesMax) {
    return invalid(
        fmt::format("descriptor tag of {} bytes; 1 to {} are allowed", tag.size(), kTagBytesMax));
  }
  iovec words{.iov_base = const_cast<char*>(tag.data()), .iov_len = tag.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &words;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);

  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return {};
  const bool is_away =
      errno == EPIPE || errno == ECONNRESET || errno == EAGAIN || errno == ENOTCONN;
  const std::string what = fmt::format("send descriptor '{}': {}", tag, system_error());
  return is_away ? unavailable(what) : internal_error(what);
}

Result<TaggedFd> receive_descriptor(int socket, Duration timeout) {
  TRY(wait_readable(socket, timeout));
  std::array<char, kTagBytesMax> tag{};
  iovec words{.iov_base = tag.data(), .iov_len = tag.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFdsMax * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &words;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = 0;
  do {
    received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received < 0 && errno == ECONNRESET) received = 0;
  if (received < 0) return internal_error("receive a descriptor: " + system_error());
  if (received == 0) return unavailable("the process that passes descriptors has gone");

  std::array<UniqueFd, kFdsMax> fds;
  std::size_t count = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < here && count < kFdsMax; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      fds[count++].reset(fd);
    }
  }
  if (count != 1 || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return invalid(fmt::format(
        "malformed descriptor message ({} descriptors where 1 belongs, tag '{}')", count,
        to_valid_utf8(std::string_view(tag.data(), static_cast<std::size_t>(received)))));
  }
  return TaggedFd{std::string(tag.data(), static_cast<std::size_t>(received)), std::move(fds[0])};
}

}  // namespace plimsoll
