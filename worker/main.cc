// plimsoll-worker: one rank of a replica. Started by plimsolld, never by hand.
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "shared/base/log.h"
#include "shared/control/descriptors.h"
#include "worker/death_pipe.h"
#include "worker/worker.h"

namespace {

// Asked to end: at once, since nothing here outlives the process.
extern "C" void end_at_once(int) { ::_exit(0); }

int fail(const plimsoll::Error& error) {
  std::fprintf(stderr, "plimsoll-worker: %s\n", error.message.c_str());
  return plimsoll::exit_code(error.code);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace plimsoll;  // NOLINT(google-build-using-namespace): main wires, nothing more
  const std::vector<std::string> words(argv + 1, argv + argc);
  Result<WorkerArguments> arguments = parse_worker_arguments(words);
  if (!arguments) return fail(arguments.error());
  arguments->has_own_process = true;
  log_start(fmt::format("worker {}.{}", arguments->replica, arguments->rank), LogLevel::info);
  std::signal(SIGTERM, end_at_once);
  std::signal(SIGINT, SIG_IGN);  // a terminal's Ctrl-C goes to the group; the daemon decides
  std::signal(SIGPIPE, SIG_IGN);
  const Result<DeathPipe> death_pipe = DeathPipe::watch(kParentFd);
  if (!death_pipe) return fail(death_pipe.error());
  return run_worker(*arguments);
}
