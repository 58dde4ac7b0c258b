// HttpSocket: the listening socket of the front door over the lives of routers and of this daemon:
// of the service manager's socket unit, kept in its descriptor store, or bound here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/inherited_descriptors.h"
#include "daemon/listener.h"
#include "daemon/service_notify.h"

namespace plimsoll {

class HttpSocket {
 public:
  HttpSocket(std::vector<InheritedDescriptor> inherited, ServiceNotify& service);

  // The URL. A socket unit's is used where it has that port (0: any); one of an earlier life where
  // it has that address. Errors: as bind_listener(); invalid where a socket unit says another port.
  // The one that was open stays open, and comes back where its address is asked for again, until
  // keep(): clients may wait there.
  Result<std::string> open(const std::string& host, std::int64_t port);
  void keep();
  // Nobody is to wait for an answer any more; unless the daemon ends and may come back.
  struct Close {
    bool daemon_ends = false;
  };
  void close(Close how);
  // The socket unit's, while nothing is served there. -1: none.
  int unserved() const { return unit_ && !bound_ ? unit_->fd.get() : -1; }
  int fd() const { return bound_ ? bound_->listener.fd.get() : -1; }  // -1: none

 private:
  struct Bound {
    std::string host;  // as it was asked for
    std::int64_t port = 0;
    Listener listener;
  };
  static bool has_port(const Bound& bound, std::int64_t port);
  Result<Bound> make(const std::string& host, std::int64_t port);
  Result<Listener> from_unit(std::int64_t port) const;
  std::optional<Listener> from_store(const std::string& host, std::int64_t port);

  ServiceNotify& service_;
  std::optional<InheritedDescriptor> unit_;  // stays, whatever is closed
  // Of earlier lives, until one is used: two, where the last one ended in a change of address.
  std::vector<InheritedDescriptor> stored_;
  std::optional<Bound> bound_;
  std::optional<Bound> former_;
  bool is_stored_ = false;
};

}  // namespace plimsoll
