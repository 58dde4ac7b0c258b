#include "shared/control/channel.h"

#include <cerrno>
#include <cstring>
#include <deque>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.hpp>

#include "shared/base/unique_fd.h"
#include "shared/control/codec.h"

namespace plimsoll {
namespace {

constexpr std::string_view kIpc = "ipc://";
constexpr int kQueuedMessagesMax = 100'000;  // each way, a peer
// What may still be on its way when a channel is closed: last words of a process that ends.
constexpr milliseconds kLinger{200};
constexpr milliseconds kReconnectFirst{5};
constexpr milliseconds kReconnectMax{500};
constexpr std::size_t kRefusedPeersMax = 256;
constexpr int kRefusedAtOnceMax = 16;  // in one call of `receive`

Error library_error(const std::string& attempt, const zmq::error_t& error) {
  return unavailable(fmt::format("{}: {}", attempt, error.what()));
}

void configure(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::linger, static_cast<int>(kLinger.count()));
  socket.set(zmq::sockopt::sndhwm, kQueuedMessagesMax);
  socket.set(zmq::sockopt::rcvhwm, kQueuedMessagesMax);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kMessageBytesMax));
}

// A socket file that somebody listens on is in use; one that refuses is left from an earlier life.
Status check_socket_file(const std::string& endpoint) {
  const std::string path = endpoint.substr(kIpc.size());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return invalid(fmt::format(
        "socket path '{}' has {} bytes, a socket's may have {}: choose a shorter --runtime-dir",
        path, path.size(), sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return {};
  if (!S_ISSOCK(found.st_mode)) {
    return unavailable(fmt::format("'{}' exists and is no socket: remove it", path));
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (probe && ::connect(probe.get(), generic, sizeof address) == 0) {
    return unavailable(fmt::format("socket '{}' is in use by another process", path));
  }
  return {};
}

}  // namespace

struct Channel::State {
  explicit State(zmq::socket_type type) : socket(context, type) { configure(socket); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  // Before the socket closes, so that a successor's file of the same name is never the one to go.
  ~State() {
    if (!bound_path.empty()) ::unlink(bound_path.c_str());
  }

  // Each channel has its own context, so that none is global and a channel's end is complete.
  zmq::context_t context{1};
  zmq::socket_t socket;
  std::optional<zmq::socket_t> monitor;  // closed before the context ends
  bool is_bound = false;
  bool has_more = false;
  std::string bound_path;
  std::set<std::string> refused_peers;
  std::deque<std::string> refusals;

  void refuse(const std::string& peer, const std::string& why) {
    if (refused_peers.size() >= kRefusedPeersMax || !refused_peers.insert(peer).second) return;
    refusals.push_back("refused a message: " + why);
    if (refused_peers.size() == kRefusedPeersMax) {
      refusals.push_back("refused messages of many peers; further ones are not reported");
    }
  }
  Status send(const std::string* peer, const Message& message);
  std::optional<Received> next();
  void watch_connection();
  bool take_break();

 private:
  bool receive_part(zmq::message_t& part) {
    while (true) {
      try {
        return socket.recv(part, zmq::recv_flags::dontwait).has_value();
      } catch (const zmq::error_t& error) {
        if (error.num() != EINTR) throw;
      }
    }
  }
  bool send_part(std::string_view content, zmq::send_flags flags) {
    while (true) {
      try {
        return socket.send(zmq::buffer(content), flags | zmq::send_flags::dontwait).has_value();
      } catch (const zmq::error_t& error) {
        if (error.num() != EINTR) throw;
      }
    }
  }
};

Status Channel::State::send(const std::string* peer, const Message& message) {
  const std::string bytes = encode_message(message);
  const auto attempt = [&] { return fmt::format("send '{}'", message_type(message)); };
  if (bytes.size() > kMessageBytesMax) {
    return invalid(fmt::format("{}: it has {} bytes, above the limit of {}", attempt(),
                               bytes.size(), kMessageBytesMax));
  }
  try {
    const bool is_addressed = peer == nullptr || send_part(*peer, zmq::send_flags::sndmore);
    if (!is_addressed || !send_part(bytes, zmq::send_flags::none)) {
      return unavailable(attempt() + ": the peer does not take its messages");
    }
    return {};
  } catch (const zmq::error_t& error) {
    if (error.num() == EHOSTUNREACH) return unavailable(attempt() + ": the peer is gone");
    return library_error(attempt(), error);
  }
}

std::optional<Received> Channel::State::next() {
  has_more = false;
  for (int refused = 0; refused < kRefusedAtOnceMax; ++refused) {
    std::vector<zmq::message_t> parts;
    try {
      do {
        zmq::message_t part;
        if (!receive_part(part)) return std::nullopt;
        parts.push_back(std::move(part));
      } while (socket.get(zmq::sockopt::rcvmore));
    } catch (const zmq::error_t&) {
      return std::nullopt;
    }
    const std::string peer = is_bound ? parts[0].to_string() : std::string();
    const std::size_t expected = is_bound ? 2 : 1;
    if (parts.size() != expected) {
      refuse(peer, fmt::format("it has {} parts where {} belong", parts.size(), expected));
      continue;
    }
    const zmq::message_t& body = parts.back();
    Result<Message> message =
        decode_message({static_cast<const std::byte*>(body.data()), body.size()});
    if (message) return Received{peer, std::move(*message)};
    refuse(peer, message.error().message);
  }
  has_more = true;
  return std::nullopt;
}

void Channel::State::watch_connection() {
  constexpr const char* kMonitor = "inproc://monitor";  // each channel has a context of its own
  if (::zmq_socket_monitor(socket.handle(), kMonitor, ZMQ_EVENT_DISCONNECTED) != 0) return;
  monitor.emplace(context, zmq::socket_type::pair);
  monitor->connect(kMonitor);
}

// Each event has two parts; its kind is the only one that is watched.
bool Channel::State::take_break() {
  bool is_broken = false;
  try {
    if (!monitor) watch_connection();
    zmq::message_t part;
    while (monitor && monitor->recv(part, zmq::recv_flags::dontwait)) is_broken = true;
  } catch (const zmq::error_t&) {
    return is_broken;
  }
  return is_broken;
}

Channel::Channel(std::unique_ptr<State> state) : state_(std::move(state)) {}
Channel::Channel(Channel&&) noexcept = default;
Channel& Channel::operator=(Channel&&) noexcept = default;
Channel::~Channel() = default;

Result<Channel> Channel::bind(const std::string& endpoint, int mode) {
  if (!endpoint.starts_with(kIpc)) return invalid("endpoint '" + endpoint + "' is no ipc:// one");
  TRY(check_socket_file(endpoint));
  const std::string attempt = "bind " + endpoint;
  try {
    auto state = std::make_unique<State>(zmq::socket_type::router);
    state->is_bound = true;
    // Without this, a message to a peer that has gone would vanish without an error.
    state->socket.set(zmq::sockopt::router_mandatory, true);
    state->socket.bind(endpoint);
    state->bound_path = endpoint.substr(kIpc.size());
    if (::chmod(state->bound_path.c_str(), static_cast<mode_t>(mode)) != 0) {
      return unavailable(
          fmt::format("{}: set the mode of the socket file: {}", attempt, std::strerror(errno)));
    }
    return Channel(std::move(state));
  } catch (const zmq::error_t& error) {
    return library_error(attempt, error);
  }
}

Result<Channel> Channel::connect(const std::string& endpoint) {
  const std::string attempt = "connect to " + endpoint;
  try {
    auto state = std::make_unique<State>(zmq::socket_type::dealer);
    state->socket.set(zmq::sockopt::reconnect_ivl, static_cast<int>(kReconnectFirst.count()));
    state->socket.set(zmq::sockopt::reconnect_ivl_max, static_cast<int>(kReconnectMax.count()));
    state->socket.connect(endpoint);
    return Channel(std::move(state));
  } catch (const zmq::error_t& error) {
    return library_error(attempt, error);
  }
}

int Channel::fd() const {
  try {
    return state_->socket.get(zmq::sockopt::fd);
  } catch (const zmq::error_t&) {
    return -1;
  }
}

Status Channel::send(const Message& message) { return state_->send(nullptr, message); }

Status Channel::send(const std::string& peer, const Message& message) {
  return state_->send(&peer, message);
}

std::optional<Received> Channel::receive() { return state_->next(); }

std::optional<Received> Channel::receive(Duration timeout) {
  const TimePoint deadline = now() + timeout;
  while (true) {
    if (std::optional<Received> received = state_->next()) return received;
    const auto left = std::chrono::ceil<milliseconds>(deadline - now());
    if (left.count() <= 0) return std::nullopt;
    try {
      zmq::pollitem_t item{state_->socket.handle(), 0, ZMQ_POLLIN, 0};
      (void)zmq::poll(&item, 1, left);  // whether it woke or not, the next look tells
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) return std::nullopt;
    }
  }
}

bool Channel::take_break() { return state_->take_break(); }

bool Channel::has_more() const { return state_->has_more; }

void Channel::refuse(const std::string& peer, const std::string& why) { state_->refuse(peer, why); }

std::optional<std::string> Channel::take_refusal() {
  if (state_->refusals.empty()) return std::nullopt;
  std::string line = std::move(state_->refusals.front());
  state_->refusals.pop_front();
  return line;
}

}  // namespace plimsoll
