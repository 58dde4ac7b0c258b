#include "daemon/listener.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "shared/base/file.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr int kBacklog = 1024;
constexpr std::size_t kTableBytesMax = 16 * 1024 * 1024;
constexpr std::size_t kCommandBytesMax = 4096;

std::string system_error() { return std::strerror(errno); }

std::string numeric_host(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes =
      address->sa_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)
          : &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  const char* shown = ::inet_ntop(address->sa_family, bytes, text.data(), text.size());
  return shown == nullptr ? "" : shown;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
struct Lookup {
  Addresses addresses{nullptr, ::freeaddrinfo};
  int failed = 0;  // of getaddrinfo
};
Lookup look_up(const std::string& host, std::int64_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  Lookup lookup;
  lookup.failed = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                                &hints, &found);
  if (lookup.failed == 0) lookup.addresses.reset(found);
  return lookup;
}

// Inodes of sockets that listen on the port, from one of the kernel's tables.
void listening_inodes(const std::string& table, std::int64_t port, std::set<std::string>& inodes) {
  const std::string wanted = fmt::format(":{:04X}", port);
  for (const std::string_view line : split(table, '\n')) {
    std::array<std::string_view, 10> fields;  // sl local remote state ... inode is the tenth
    std::size_t count = 0;
    for (const std::string_view field : split(line, ' ')) {
      if (!field.empty() && count < fields.size()) fields[count++] = field;
    }
    constexpr std::string_view kListening = "0A";
    if (count == fields.size() && fields[1].ends_with(wanted) && fields[3] == kListening) {
      inodes.emplace(fields[9]);
    }
  }
}

bool holds_one(const std::filesystem::path& process, const std::set<std::string>& inodes) {
  std::error_code ignored;  // other users' processes cannot be looked into
  for (const auto& entry : std::filesystem::directory_iterator(process / "fd", ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    constexpr std::string_view kPrefix = "socket:[";
    if (!target.starts_with(kPrefix)) continue;
    if (inodes.contains(target.substr(kPrefix.size(), target.size() - kPrefix.size() - 1))) {
      return true;
    }
  }
  return false;
}

Result<UniqueFd> listening_socket(const addrinfo& address) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return unavailable("make a socket: " + system_error());
  const int yes = 1;
  // Connections of an earlier life that are still closing don't count.
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(fd.get(), address.ai_addr, address.ai_addrlen) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return Error{errno == EADDRNOTAVAIL ? Code::invalid : Code::unavailable, system_error()};
  }
  return fd;
}

}  // namespace

Result<Listener> bind_listener(const std::string& host, std::int64_t port) {
  const std::string context = fmt::format("listen on {} port {}: ", host, port);
  const Lookup lookup = look_up(host, port);
  if (lookup.failed != 0) {
    return invalid(context + ::gai_strerror(lookup.failed) +
                   ": --host is an address of this machine");
  }
  Result<UniqueFd> fd = listening_socket(*lookup.addresses);
  if (!fd && fd.error().code == Code::invalid) {
    return invalid(context + fd.error().message + ": --host is an address of this machine");
  }
  if (!fd) {
    const std::string holder = port_holder(port);
    Error error = context + std::move(fd.error());
    if (!holder.empty()) error.message += fmt::format("; {} has it", holder);
    error.message += ": choose another --port, or 0 for any free one";
    return error;
  }
  const SocketAddress address = TRY_CONTEXT(context, socket_address(fd->get()));
  return Listener{std::move(*fd), http_url(host, address.port)};
}

Result<SocketAddress> socket_address(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return unavailable("ask a socket for its address: " + system_error());
  }
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) {
    return invalid("the listening socket is not of TCP");
  }
  const bool is_v6 = address.ss_family == AF_INET6;
  const std::uint16_t port =
      ntohs(is_v6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                  : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  return SocketAddress{numeric_host(reinterpret_cast<const sockaddr*>(&address)), port};
}

bool is_same_host(const std::string& host, const std::string& numeric) {
  const Lookup lookup = look_up(host, 0);
  return lookup.addresses && numeric_host(lookup.addresses->ai_addr) == numeric;
}

std::string http_url(const std::string& host, std::int64_t port) {
  std::string shown = host;
  if (host == "0.0.0.0" || host.empty()) shown = "127.0.0.1";
  if (host == "::") shown = "::1";
  if (shown.find(':') != std::string::npos) shown = "[" + shown + "]";
  return fmt::format("http://{}:{}", shown, port);
}

std::string port_holder(std::int64_t port, const std::filesystem::path& root) {
  if (port <= 0) return "";
  std::set<std::string> inodes;
  for (const char* name : {"proc/net/tcp", "proc/net/tcp6"}) {
    const Result<std::string> table = read_file(root / name, kTableBytesMax);
    if (table) listening_inodes(*table, port, inodes);
  }
  if (inodes.empty()) return "";
  std::error_code ignored;  // processes come and go
  for (const auto& entry : std::filesystem::directory_iterator(root / "proc", ignored)) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!holds_one(entry.path(), inodes)) continue;
    const Result<std::string> name = read_file(entry.path() / "comm", kCommandBytesMax);
    return fmt::format("process {} ({})", pid, name ? trim(*name) : "?");
  }
  return "";
}

}  // namespace plimsoll
