// CHECK: a broken invariant ends the process; state is never patched up. Never for bad input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace plimsoll::detail {
[[noreturn]] inline void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, what);
  std::abort();
}
}  // namespace plimsoll::detail

#define CHECK(condition) \
  ((condition) ? (void)0 : ::plimsoll::detail::check_failed(__FILE__, __LINE__, #condition))
