// Futex: sleeping on a 32-bit word in shared memory until another process changes and wakes it.
//
// Works across processes (no private flag). A wake-up may be spurious: callers look at the word
// again.
#pragma once

#include <atomic>
#include <cstdint>

#include "shared/base/clock.h"

namespace plimsoll {

// Sleeps while `word` holds `expected`, until woken or until the timeout; returns at once when it
// holds something else.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout);

void futex_wake_all(const std::atomic<std::uint32_t>& word);

}  // namespace plimsoll
