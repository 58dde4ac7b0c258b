#include "tools/cli/daemon_client.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "shared/base/unique_fd.h"
#include "shared/control/endpoints.h"

namespace plimsoll {
namespace {

constexpr milliseconds kTurn{200};
constexpr seconds kStatusTimeout{10};
// The daemon bounds every operation (load-timeout, shutdown-timeout); this is only the last resort.
constexpr std::chrono::hours kOperationTimeout{24};

// 0, or the error of a connection to the control socket; the process that listens there.
int try_to_connect(const std::filesystem::path& runtime, ucred* listener = nullptr) {
  const std::string path = control_endpoint(runtime).substr(std::strlen("ipc://"));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (!probe) return errno;
  if (::connect(probe.get(), generic, sizeof address) != 0) return errno;
  socklen_t size = sizeof(ucred);
  if (listener != nullptr) ::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, listener, &size);
  return 0;
}

}  // namespace

bool is_daemon_listening(const std::filesystem::path& runtime) {
  return try_to_connect(runtime) == 0;
}

std::optional<std::string> barred_from_daemon(const std::filesystem::path& runtime) {
  const int error = try_to_connect(runtime);
  if (error != EACCES && error != EPERM) return std::nullopt;
  return fmt::format(
      "this user may not talk to a plimsolld in {} ({}): call plimsoll as the daemon's user, or "
      "as root",
      runtime.string(), std::strerror(error));
}

Result<DaemonClient> DaemonClient::connect(const std::filesystem::path& runtime) {
  Channel channel = TRY(Channel::connect(control_endpoint(runtime)));
  (void)channel.take_break();  // from here on it is watched
  return DaemonClient(runtime, std::move(channel));
}

Result<Reply> DaemonClient::ask(const Command& command, Duration timeout) {
  return wait(command, now() + timeout, [] { return Status(); });
}

Result<Reply> DaemonClient::ask_and_wait(const Command& command,
                                         const std::function<Status()>& while_waiting) {
  return wait(command, now() + kOperationTimeout, while_waiting);
}

Result<Reply> DaemonClient::wait(const Command& command, TimePoint deadline,
                                 const std::function<Status()>& while_waiting) {
  TRY(channel_.send(command));
  for (TimePoint time = now(); time < deadline; time = now()) {
    const std::optional<Received> received =
        channel_.receive(std::min<Duration>(kTurn, deadline - time));
    if (const auto refusal = channel_.take_refusal()) {
      return unavailable(
          fmt::format("plimsolld does not speak this program's protocol: {}", *refusal));
    }
    if (received) {
      if (const auto* reply = std::get_if<Reply>(&received->message)) return *reply;
      continue;
    }
    if (!is_daemon_listening(runtime_)) {
      return unavailable(fmt::format(
          "{}: plimsolld ended before it answered; `plimsoll logs` may say why", command.verb));
    }
    // The answer was for a connection that is no more; what it would have said is not known.
    if (channel_.take_break()) {
      if (command.verb == "status") {  // which can be asked again
        TRY(channel_.send(command));
        continue;
      }
      return unavailable(fmt::format(
          "{}: the connection to plimsolld broke before it answered, so that it may or may not be "
          "done; `plimsoll status` and `plimsoll history` tell",
          command.verb));
    }
    TRY(while_waiting());
  }
  ucred daemon{};
  (void)try_to_connect(runtime_, &daemon);
  return timed_out(
      fmt::format("{}: plimsolld (pid {}) listens in {} but does not answer: it is stopped, or "
                  "stuck (`kill -CONT {}` or `kill -KILL {}`)",
                  command.verb, daemon.pid, runtime_.string(), daemon.pid, daemon.pid));
}

void DaemonClient::idle(Duration time) { (void)channel_.receive(time); }

Result<Json> ask_status(const std::filesystem::path& runtime) {
  DaemonClient client = TRY(DaemonClient::connect(runtime));
  Reply reply = TRY(client.ask({.verb = "status", .arguments = Json::object()}, kStatusTimeout));
  if (reply.exit_code != 0) return internal_error("status: " + reply.message);
  return std::move(reply.result);
}

}  // namespace plimsoll
