// DaemonClient: one command at a time to the daemon of a runtime folder, and its reply.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/control/channel.h"

namespace plimsoll {

// Somebody accepts connections on the daemon's control socket.
bool is_daemon_listening(const std::filesystem::path& runtime);
// Why this user cannot know whether somebody does: the folder or the socket is not theirs to use.
std::optional<std::string> barred_from_daemon(const std::filesystem::path& runtime);

class DaemonClient {
 public:
  static Result<DaemonClient> connect(const std::filesystem::path& runtime);

  // Errors: unavailable where the daemon ends meanwhile; timed_out.
  Result<Reply> ask(const Command& command, Duration timeout);
  // The same for what takes long: `while_waiting` is called several times a second. No deadline of
  // its own, since the daemon's hold; ends when the daemon does, or `while_waiting` fails.
  Result<Reply> ask_and_wait(const Command& command, const std::function<Status()>& while_waiting);
  // Returns after that long, or as soon as the daemon says something (which is dropped).
  void idle(Duration time);

 private:
  DaemonClient(std::filesystem::path runtime, Channel channel)
      : runtime_(std::move(runtime)), channel_(std::move(channel)) {}
  Result<Reply> wait(const Command& command, TimePoint deadline,
                     const std::function<Status()>& while_waiting);

  std::filesystem::path runtime_;
  Channel channel_;
};

// The daemon's status JSON. Errors: as ask(); a daemon that is silent is named by its pid.
Result<Json> ask_status(const std::filesystem::path& runtime);

}  // namespace plimsoll
