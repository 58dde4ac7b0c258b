// InheritedSockets: listening sockets that the service manager holds for us: of plimsoll.socket, or
// of an earlier life of this daemon, from the descriptor store.
#pragma once

#include <string>
#include <vector>

#include "shared/base/unique_fd.h"

namespace plimsoll {

// The name under which the daemon gives its own listening socket into the descriptor store.
inline constexpr const char* kStoredListener = "listener";

struct InheritedSocket {
  std::string name;  // kStoredListener, or what the socket unit calls it
  UniqueFd fd;
};

// Takes all that LISTEN_FDS passes and clears the variables; what is no listening stream socket is
// closed. To be called once, before other descriptors are opened.
std::vector<InheritedSocket> take_inherited_sockets();

}  // namespace plimsoll
