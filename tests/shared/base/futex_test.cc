#include "shared/base/futex.h"

#include <thread>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Futex, ReturnsAtOnceWhenTheWordHasChanged) {
  const std::atomic<std::uint32_t> word{5};
  const TimePoint start = now();
  futex_wait(word, 4, seconds(20));
  EXPECT_LT(now() - start, seconds(10));
}

TEST(Futex, ReturnsAtTheTimeout) {
  const std::atomic<std::uint32_t> word{5};
  const TimePoint start = now();
  futex_wait(word, 5, milliseconds(5));
  futex_wait(word, 5, Duration::zero());
  EXPECT_LT(now() - start, seconds(10));
}

TEST(Futex, WakesASleeper) {
  std::atomic<std::uint32_t> word{0};
  const TimePoint start = now();
  std::thread sleeper([&word] {
    while (word.load() == 0) futex_wait(word, 0, seconds(20));
  });
  word.store(1);
  futex_wake_all(word);
  sleeper.join();
  EXPECT_LT(now() - start, seconds(10));
}

}  // namespace
}  // namespace plimsoll
