#include "daemon/http_socket.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>

namespace plimsoll {

HttpSocket::HttpSocket(std::vector<InheritedDescriptor> inherited, ServiceNotify& service)
    : service_(service) {
  for (InheritedDescriptor& socket : inherited) {
    auto& place = socket.name == kStoredListener ? stored_ : unit_;
    if (!place) place = std::move(socket);  // the manager may hold several; one is served
  }
}

Result<std::string> HttpSocket::open(const std::string& host, std::int64_t port) {
  if (unit_) {
    listener_ = TRY(from_unit(port));
    return listener_->url;
  }
  listener_ = from_store(host, port);
  is_stored_ = listener_.has_value();
  if (!listener_) {
    listener_ = TRY(bind_listener(host, port));
    is_stored_ = service_.store(kStoredListener, listener_->fd.get());
  }
  return listener_->url;
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

// Of an earlier life. Where the address has changed meanwhile, nobody must go on waiting there.
std::optional<Listener> HttpSocket::from_store(const std::string& host, std::int64_t port) {
  if (!stored_) return std::nullopt;
  InheritedDescriptor socket = std::move(*stored_);
  stored_.reset();
  const Result<SocketAddress> address = socket_address(socket.fd.get());
  if (address && (port == 0 || port == address->port) && is_same_host(host, address->host)) {
    return Listener{std::move(socket.fd), http_url(host, address->port)};
  }
  service_.forget(kStoredListener);
  return std::nullopt;
}

void HttpSocket::close(Close how) {
  listener_.reset();
  if (is_stored_ && !how.daemon_ends) service_.forget(kStoredListener);
  is_stored_ = false;
}

}  // namespace plimsoll
