// InheritedDescriptors: what the service manager holds for us: listening sockets of plimsoll.socket
// or of an earlier life of this daemon, and packed weights, from the descriptor store.
#pragma once

#include <string>
#include <vector>

#include "shared/base/unique_fd.h"

namespace plimsoll {

// The name under which the daemon gives its own listening socket into the descriptor store.
inline constexpr const char* kStoredListener = "listener";
// And those of weights: "weights-3", of rank 3.
inline constexpr const char* kStoredWeights = "weights-";

struct InheritedDescriptor {
  std::string name;  // one of the above, or what the socket unit calls it
  UniqueFd fd;
};

struct InheritedDescriptors {
  std::vector<InheritedDescriptor> sockets;
  std::vector<InheritedDescriptor> weights;  // sealed blocks
};

// Takes all that LISTEN_FDS passes and clears the variables; what is neither is closed. To be
// called once, before other descriptors are opened.
InheritedDescriptors take_inherited_descriptors();

}  // namespace plimsoll
