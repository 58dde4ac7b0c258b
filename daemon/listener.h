// Listener: the TCP socket of the HTTP front door, bound before anything is started.
//
// The daemon keeps it while routers come and go, so that clients wait in its queue meanwhile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

struct Listener {
  UniqueFd fd;
  std::string url;  // "http://127.0.0.1:8000"
};

// Port 0: a free one. Errors: invalid for a host that is none; unavailable where the port is taken,
// naming the process that has it where it can be seen.
Result<Listener> bind_listener(const std::string& host, std::int64_t port);

// Where a socket listens: numeric, "0.0.0.0" and "::" for every address.
struct SocketAddress {
  std::string host;
  std::int64_t port = 0;
};
Result<SocketAddress> socket_address(int fd);
// Whether a name or address, as --host takes it, stands for that numeric address.
bool is_same_host(const std::string& host, const std::string& numeric);
// Where clients of this machine reach it: "every address" is no address to connect to.
std::string http_url(const std::string& host, std::int64_t port);

// "process 4711 (nginx)", or "" where it cannot be seen. `root` stands before /proc, for tests.
std::string port_holder(std::int64_t port, const std::filesystem::path& root = "/");

}  // namespace plimsoll
