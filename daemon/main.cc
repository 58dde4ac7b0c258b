#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/inherited_descriptors.h"
#include "daemon/refuser.h"
#include "shared/base/log.h"
#include "shared/base/text.h"
#include "shared/options/folders.h"
#include "shared/options/option_parse.h"
#include "shared/options/option_paths.h"
#include "shared/options/option_print.h"

namespace plimsoll {
namespace {

int fail(const Error& error) {
  for (const std::string_view line : split(error.message, '\n')) {
    std::fprintf(stderr, "plimsolld: %.*s\n", static_cast<int>(line.size()), line.data());
  }
  const int code = exit_code(error.code);
  if (!is_final(code)) return code;
  // Those that the daemon itself has not taken: it did not come that far.
  for (const InheritedDescriptor& socket : take_inherited_descriptors().sockets) {
    Refuser().finish(socket.fd.get(), error.message, kFarewellTime);
  }
  return code;
}

// Whatever is opened first would take the place of a descriptor that is closed, and what is said
// would be written there: into a lock, or to a client.
void fill_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    const bool is_closed = ::fcntl(fd, F_GETFD) == -1 && errno == EBADF;
    if (is_closed && ::open("/dev/null", O_RDWR) != fd) std::abort();
  }
}

std::string config_file(const OptionSources& sources) {
  return (sources.file ? *sources.file : default_folders().config_file).string();
}

Result<int> run(int argc, const char* const* argv) {
  const OptionSources sources = TRY(process_sources(argc, argv));
  OptionSet options = TRY(parse_options(sources));
  make_paths_absolute(options.values);
  log_start("plimsolld", LogLevel::info);
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return unavailable("find the own program's folder: " + failed.message());
  const std::unique_ptr<Daemon> daemon =
      TRY(Daemon::create(options, self.parent_path(), absolute_path(config_file(sources))));
  return daemon->run();
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  plimsoll::fill_standard_descriptors();
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help") {
      std::printf("plimsolld: plans, starts and supervises a deployment, in the foreground.\n\n%s",
                  plimsoll::option_help().c_str());
      return 0;
    }
    if (argument == "--version") {
      std::puts("plimsolld " PLIMSOLL_VERSION);
      return 0;
    }
  }
  const plimsoll::Result<int> code = plimsoll::run(argc, argv);
  return code ? *code : plimsoll::fail(code.error());
}
