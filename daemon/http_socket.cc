#include "daemon/http_socket.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

namespace plimsoll {

HttpSocket::HttpSocket(std::vector<InheritedDescriptor> inherited, ServiceNotify& service)
    : service_(service) {
  for (InheritedDescriptor& socket : inherited) {
    if (socket.name == kStoredListener) {
      stored_.push_back(std::move(socket));
    } else if (!unit_) {
      unit_ = std::move(socket);  // of a unit with several one is served
    }
  }
}

Result<std::string> HttpSocket::open(const std::string& host, std::int64_t port) {
  if (bound_ && bound_->host == host && (bound_->port == port || has_port(*bound_, port))) {
    return bound_->listener.url;
  }
  const bool comes_back =
      former_ && former_->host == host && (former_->port == port || has_port(*former_, port));
  if (comes_back) {
    std::swap(bound_, former_);
    keep();
    return bound_->listener.url;
  }
  Result<Bound> made = make(host, port);
  // Of one port there may not be two sockets at a time.
  const bool is_in_the_way = !made && bound_ && port != 0 && has_port(*bound_, port);
  if (is_in_the_way) {
    const std::string old_host = bound_->host;
    close({});
    made = make(host, port);
    if (!made) {
      if (Result<Bound> again = make(old_host, port)) bound_ = std::move(*again);
    }
  }
  if (!made) return made.error();
  former_ = std::exchange(bound_, std::move(*made));
  return bound_->listener.url;
}

// Also where any was asked for.
bool HttpSocket::has_port(const Bound& bound, std::int64_t port) {
  const Result<SocketAddress> address = socket_address(bound.listener.fd.get());
  return address && address->port == port;
}

Result<HttpSocket::Bound> HttpSocket::make(const std::string& host, std::int64_t port) {
  if (unit_) return Bound{host, port, TRY(from_unit(port))};
  std::optional<Listener> stored = from_store(host, port);
  is_stored_ = is_stored_ || stored.has_value();
  if (stored) return Bound{host, port, std::move(*stored)};
  Listener listener = TRY(bind_listener(host, port));
  is_stored_ = service_.store(kStoredListener, listener.fd.get()) || is_stored_;
  return Bound{host, port, std::move(listener)};
}

void HttpSocket::keep() {
  if (!former_) return;
  former_.reset();
  if (!is_stored_ || !bound_) return;
  // The manager's copies have one name; the other's would hold its address.
  service_.forget(kStoredListener);
  is_stored_ = service_.store(kStoredListener, bound_->listener.fd.get());
}

Result<Listener> HttpSocket::from_unit(std::int64_t port) const {
  const SocketAddress address = TRY(socket_address(unit_->fd.get()));
  if (port != 0 && port != address.port) {
    return invalid(
        fmt::format("the socket unit listens on {} port {}, and the configuration says "
                    "port {}: change one of them",
                    address.host, address.port, port));
  }
  UniqueFd copy(::fcntl(unit_->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) {
    return unavailable(fmt::format("copy the socket unit's descriptor: {}", std::strerror(errno)));
  }
  return Listener{std::move(copy), http_url(address.host, address.port)};
}

// Of an earlier life. Nobody must go on waiting at an address that is not wanted any more.
std::optional<Listener> HttpSocket::from_store(const std::string& host, std::int64_t port) {
  const std::vector<InheritedDescriptor> stored = std::exchange(stored_, {});
  std::optional<Listener> wanted;
  for (const InheritedDescriptor& socket : stored) {
    const Result<SocketAddress> address = socket_address(socket.fd.get());
    const bool is_wanted =
        address && (port == 0 || port == address->port) && is_same_host(host, address->host);
    if (wanted || !is_wanted) continue;
    UniqueFd copy(::fcntl(socket.fd.get(), F_DUPFD_CLOEXEC, 0));
    if (copy) wanted = Listener{std::move(copy), http_url(host, address->port)};
  }
  if (wanted && stored.size() == 1) return wanted;
  // All copies have one name.
  if (!stored.empty()) service_.forget(kStoredListener);
  if (wanted) (void)service_.store(kStoredListener, wanted->fd.get());
  return wanted;
}

void HttpSocket::close(Close how) {
  bound_.reset();
  former_.reset();
  if (is_stored_ && !how.daemon_ends) service_.forget(kStoredListener);
  is_stored_ = false;
}

}  // namespace plimsoll
