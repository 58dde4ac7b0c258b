// Channel: typed send and receive over one ZeroMQ socket. One thread owns it.
//
// ZeroMQ's descriptor is edge-triggered: after every wake-up, and after every send, call `receive`
// until it returns nothing and `has_more` says no. A message that is malformed, foreign or of
// another version is refused: `receive` skips a few of them and then returns nothing, so that no
// flood holds its caller; `take_refusal` gives one line a peer, once.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/control/messages.h"

namespace plimsoll {

struct Received {
  std::string peer;  // routing id; empty on a connected channel
  Message message;
};

class Channel {
 public:
  // Many peers, addressed by id. `mode` is the socket file's (0600). An existing socket file that
  // nobody answers on is replaced; one in use: Code::unavailable.
  static Result<Channel> bind(const std::string& endpoint, int mode);
  // One peer. Connecting succeeds at once; ZeroMQ (re)connects behind the scenes.
  static Result<Channel> connect(const std::string& endpoint);
  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  ~Channel();

  int fd() const;
  // Never blocks. Errors: Code::unavailable where the peer is gone or its queue is full.
  Status send(const Message& message);  // on a connected channel
  Status send(const std::string& peer, const Message& message);
  std::optional<Received> receive();
  // Waits at most that long.
  std::optional<Received> receive(Duration timeout);
  // Whether the last `receive` ended at its bound of refused messages, not at an empty socket.
  bool has_more() const;
  // Of a message that was received and does not belong here: a line, if it is its peer's first.
  void refuse(const std::string& peer, const std::string& why);
  std::optional<std::string> take_refusal();
  // Of a connected channel: whether its connection was there and broke since the last call. ZeroMQ
  // connects again by itself, but what was on its way is lost. The first call begins to watch.
  bool take_break();

 private:
  struct State;
  explicit Channel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll
