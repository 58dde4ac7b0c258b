#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include <sys/prctl.h>
#include <sys/resource.h>

#include "router/router.h"
#include "shared/base/log.h"

namespace plimsoll {
namespace {

constexpr const char* kUsage = "usage: plimsoll-router --control ENDPOINT --instance ID\n";
constexpr int kExitUsage = 2;

Result<RouterArguments> parse_arguments(int argc, char** argv) {
  RouterArguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 >= argc) return invalid(std::string(name) + " needs a value");
    if (name == "--control") {
      arguments.control_endpoint = argv[i + 1];
    } else if (name == "--instance") {
      arguments.instance = argv[i + 1];
    } else {
      return invalid("unknown argument " + std::string(name));
    }
  }
  if (arguments.control_endpoint.empty()) return invalid("--control is missing");
  return arguments;
}

// Each connection is a descriptor; the usual soft limit of 1024 would be reached before ours. Where
// the hard one would too, some are left for daemon and replicas: clients alone give way.
void fit_descriptor_limit(HttpLimits& http) {
  constexpr rlim_t kReserve = 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t left = std::max(limit.rlim_max, 2 * kReserve) - kReserve;
  http.connections_max = std::min<rlim_t>(http.connections_max, left);
}

int run(int argc, char** argv) {
  auto arguments = parse_arguments(argc, argv);
  if (!arguments) {
    std::fprintf(stderr, "plimsoll-router: %s\n%s", arguments.error().message.c_str(), kUsage);
    return kExitUsage;
  }
  log_start("router", LogLevel::info);
  // The socket pair tells of the daemon's end too; this covers the time before we watch it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGPIPE, SIG_IGN);
  // Ctrl-C in a terminal reaches the whole group; the daemon decides when we end.
  std::signal(SIGINT, SIG_IGN);
  fit_descriptor_limit(arguments->http);
  const auto code = run_router(*arguments);
  if (!code) {
    LOG_ERROR("{}", code.error().message);
    return exit_code(code.error().code);
  }
  return *code;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) { return plimsoll::run(argc, argv); }
