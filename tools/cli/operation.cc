#include "tools/cli/operation.h"

#include <csignal>
#include <optional>
#include <ostream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "tools/cli/daemon_client.h"
#include "tools/cli/json_view.h"
#include "tools/cli/render.h"

namespace plimsoll {

std::filesystem::path runtime_of(const Invocation& call) {
  return runtime_folder(call.options.values);
}

bool is_daemon_running(const Invocation& call) { return is_daemon_listening(runtime_of(call)); }

namespace {

// The operation is the daemon's, and goes on without who asked for it.
void detach(int /*signal*/) {
  constexpr std::string_view kWords =
      "\nplimsoll: left before it was done; plimsolld goes on with it (`plimsoll status` shows "
      "it)\n";
  (void)!::write(STDERR_FILENO, kWords.data(), kWords.size());
  ::_exit(128 + SIGINT);
}

class DetachAtInterrupt {
 public:
  DetachAtInterrupt() : before_(std::signal(SIGINT, detach)) {
    // A shell starts so what runs in its background.
    if (before_ == SIG_IGN) (void)std::signal(SIGINT, SIG_IGN);
  }
  ~DetachAtInterrupt() { (void)std::signal(SIGINT, before_); }
  DetachAtInterrupt(const DetachAtInterrupt&) = delete;
  DetachAtInterrupt& operator=(const DetachAtInterrupt&) = delete;

 private:
  void (*before_)(int);
};

}  // namespace

Result<Reply> run_operation(const Invocation& call, const Command& command) {
  const std::filesystem::path runtime = runtime_of(call);
  DaemonClient client = TRY(DaemonClient::connect(runtime));
  ProgressView view(call.console);
  const DetachAtInterrupt interrupt;
  return client.ask_and_wait(command, [&]() -> Status {
    const Result<Json> status = ask_status(runtime);
    // A daemon that is silent for so long will not do what was asked either; another error says
    // nothing about the operation.
    if (!status && status.error().code == Code::timed_out) return status.error();
    if (status && !text_at(*status, {"operation"}).empty()) view.show(*status);
    return {};
  });
}

int report_reply(const Invocation& call, const Reply& reply) {
  const int code = static_cast<int>(reply.exit_code);
  if (call.line.json) {
    Json json = Json::object({{"exit_code", reply.exit_code}, {"message", reply.message}});
    if (reply.result.is_object()) {
      for (const auto& [name, value] : reply.result.as_object()) json.set(name, value);
    }
    call.console.out << dump_json(json, 2) << std::endl;
  }
  if (code != kExitOk) {
    call.console.err << "plimsoll " << call.line.verb << ": " << reply.message << std::endl;
  } else if (!call.line.json) {
    if (!reply.message.empty()) call.console.out << reply.message << "\n";
    call.console.out << render_changes(reply.result) << std::flush;
  }
  return code;
}

int report_misuse(const Invocation& call, const std::string& message) {
  return report_reply(call, {.exit_code = kExitUsage, .message = message, .result = {}});
}

int report_bad_value(const Invocation& call, const std::string& message) {
  const int code = exit_code(Code::invalid);
  return report_reply(call, {.exit_code = code, .message = message, .result = {}});
}

void print_text(Console& console, bool json, const std::string& text) {
  if (json) {
    console.out << dump_json(Json::object({{"text", text}}), 2) << std::endl;
  } else {
    console.out << text << std::flush;
  }
}

int report_not_running(const Invocation& call) {
  if (const std::optional<std::string> barred = barred_from_daemon(runtime_of(call))) {
    return report_reply(call, {.exit_code = kExitFailed, .message = *barred, .result = {}});
  }
  const std::string message = fmt::format(
      "no plimsolld runs in {} (`plimsoll start` launches one; --runtime-dir names "
      "another instance)",
      runtime_of(call).string());
  return report_reply(call, {.exit_code = kExitNotRunning, .message = message, .result = {}});
}

}  // namespace plimsoll
