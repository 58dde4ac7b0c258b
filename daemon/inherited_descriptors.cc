#include "daemon/inherited_descriptors.h"

#include <cstdlib>

#include <fcntl.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include "shared/base/sealed_block.h"

namespace plimsoll {

InheritedDescriptors take_inherited_descriptors() {
  InheritedDescriptors taken;
  char** names = nullptr;
  const int count = ::sd_listen_fds_with_names(1, &names);
  for (int i = 0; i < count; ++i) {
    UniqueFd fd(SD_LISTEN_FDS_START + i);
    std::string name = names != nullptr ? names[i] : "";
    if (::sd_is_socket(fd.get(), AF_UNSPEC, SOCK_STREAM, 1) > 0) {
      (void)::fcntl(fd.get(), F_SETFL, O_NONBLOCK);  // cannot fail on a socket
      taken.sockets.push_back({std::move(name), std::move(fd)});
    } else if (name.starts_with(kStoredWeights) && SealedBlock::label_of(fd.get())) {
      taken.weights.push_back({std::move(name), std::move(fd)});
    }
    if (names != nullptr) std::free(names[i]);
  }
  std::free(names);
  return taken;
}

}  // namespace plimsoll
