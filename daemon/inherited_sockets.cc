#include "daemon/inherited_sockets.h"

#include <cstdlib>

#include <fcntl.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

namespace plimsoll {

std::vector<InheritedSocket> take_inherited_sockets() {
  std::vector<InheritedSocket> sockets;
  char** names = nullptr;
  const int count = ::sd_listen_fds_with_names(1, &names);
  for (int i = 0; i < count; ++i) {
    UniqueFd fd(SD_LISTEN_FDS_START + i);
    const bool is_listening = ::sd_is_socket(fd.get(), AF_UNSPEC, SOCK_STREAM, 1) > 0;
    if (is_listening) {
      (void)::fcntl(fd.get(), F_SETFL, O_NONBLOCK);  // cannot fail on a socket
      sockets.push_back({names != nullptr ? names[i] : "", std::move(fd)});
    }
    if (names != nullptr) std::free(names[i]);
  }
  std::free(names);
  return sockets;
}

}  // namespace plimsoll
