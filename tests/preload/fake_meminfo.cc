// Another /proc/meminfo for tests, loaded by LD_PRELOAD: whoever opens it gets $FAKE_MEMINFO, so
// that a machine can be short of memory without being so.
#include <cstdarg>
#include <cstdlib>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>

namespace {

using Open = int (*)(const char*, int, ...);

int open_other(const char* symbol, const char* path, int flags, mode_t mode) {
  const auto real = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, symbol));
  const char* fake = std::getenv("FAKE_MEMINFO");
  const bool is_it =
      fake != nullptr && path != nullptr && path == std::string_view("/proc/meminfo");
  return real(is_it ? fake : path, flags, mode);
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : mode_t{0};
  va_end(rest);
  return open_other("open", path, flags, mode);
}

extern "C" int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : mode_t{0};
  va_end(rest);
  return open_other("open64", path, flags, mode);
}
