#include "daemon/death_watch.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/base/check.h"
#include "shared/base/shared_block.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {
namespace {

constexpr ReplicaSegmentShape kShape = {.ranks = 2};
constexpr Duration kDeadline = seconds(20);

class DeathWatchTest : public ::testing::Test {
 protected:
  DeathWatchTest() : event_(::eventfd(0, EFD_CLOEXEC)) {
    auto block = SharedBlock::create("test", replica_segment_bytes(kShape));
    CHECK(block && event_);
    block_.emplace(std::move(*block));
    segment_.emplace(*init_replica_segment(block_->bytes(), kShape));
  }

  // Small memory mapped again and again: as much for the kernel to take apart as memory of that
  // size, and no more than a little of the machine's.
  static bool map(Bytes bytes) {
    constexpr Bytes kPieceBytes = 4 * kMiB;
    const int piece = ::memfd_create("test", MFD_CLOEXEC);
    if (piece < 0 || ::ftruncate(piece, kPieceBytes) != 0) return false;
    for (Bytes mapped = 0; mapped < bytes; mapped += kPieceBytes) {
      void* at =
          ::mmap(nullptr, kPieceBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, piece, 0);
      if (at == MAP_FAILED) return false;
    }
    return true;
  }

  // A process that is rank 1 and has mapped that much memory; it waits to be killed.
  pid_t start(Bytes bytes) {
    std::array<int, 2> ready{};
    CHECK(::pipe(ready.data()) == 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const bool is_fine = map(bytes) && segment_->hold_life(1).has_value();
      const char word = is_fine ? 'y' : 'n';
      (void)!::write(ready[1], &word, 1);
      for (;;) ::pause();
    }
    char word = 'n';
    CHECK(::read(ready[0], &word, 1) == 1);
    EXPECT_EQ(word, 'y');
    ::close(ready[0]);
    ::close(ready[1]);
    return pid;
  }

  bool is_told_within(Duration limit) {
    pollfd one{.fd = event_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, static_cast<int>(std::chrono::ceil<milliseconds>(limit).count())) == 1;
  }

  // From the kill of a process of that size until it is told of.
  Duration time_of_death(Bytes bytes) {
    segment_ = *init_replica_segment(block_->bytes(), kShape);
    const pid_t pid = start(bytes);
    EXPECT_TRUE(segment_->is_life_held(1));
    const DeathWatch watch(*segment_, 1, event_.get());
    EXPECT_FALSE(is_told_within(milliseconds(5)));
    const TimePoint killed = now();
    ::kill(pid, SIGKILL);
    EXPECT_TRUE(is_told_within(kDeadline));
    const Duration took = now() - killed;
    EXPECT_TRUE(watch.is_over());
    std::uint64_t count = 0;
    EXPECT_EQ(::read(event_.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
    ::waitpid(pid, nullptr, 0);
    return took;
  }

  std::optional<SharedBlock> block_;
  std::optional<ReplicaSegment> segment_;
  UniqueFd event_;
};

TEST_F(DeathWatchTest, TellsOfAKilledProcessSoonWhateverItsSize) {
  for (const Bytes bytes : {64 * kMiB, 2 * kGiB}) {
    // The best of a few: a loaded machine may not run this thread at once.
    Duration took = kDeadline;
    for (int i = 0; i < 4; ++i) took = std::min(took, time_of_death(bytes));
    EXPECT_LT(took, milliseconds(50)) << format_bytes(bytes);
    RecordProperty("death_known_ms_" + std::to_string(bytes / kMiB),
                   std::to_string(to_seconds(took) * 1e3));
  }
}

TEST_F(DeathWatchTest, TellsOfAnExitToo) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    (void)segment_->hold_life(1);
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  DeathWatch watch(*segment_, 1, event_.get());
  EXPECT_TRUE(is_told_within(kDeadline));
}

TEST_F(DeathWatchTest, CanBeGivenUpWhileTheRankLives) {
  const pid_t pid = start(kMiB);
  const TimePoint begin = now();
  { const DeathWatch watch(*segment_, 1, event_.get()); }
  EXPECT_LT(now() - begin, seconds(10));
  EXPECT_FALSE(is_told_within(milliseconds(0)));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST_F(DeathWatchTest, ALifeIsHeldOnce) {
  ASSERT_TRUE(segment_->hold_life(0));
  EXPECT_FALSE(segment_->hold_life(0));
  EXPECT_FALSE(segment_->is_life_held(1));
}

}  // namespace
}  // namespace plimsoll
