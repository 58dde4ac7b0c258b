#include "shared/base/futex.h"

#include <ctime>
#include <limits>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace plimsoll {

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout) {
  static_assert(sizeof(word) == sizeof(std::uint32_t) &&
                std::atomic<std::uint32_t>::is_always_lock_free);
  if (timeout <= Duration::zero()) return;
  const auto whole = std::chrono::duration_cast<seconds>(timeout);
  const timespec limit = {whole.count(), (timeout - whole).count()};
  // Woken, timed out, interrupted or changed before: the caller looks at the word in any case.
  (void)::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  (void)::syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr,
                  0);
}

}  // namespace plimsoll
