#include "worker/collective/segment_wait.h"

#include <ctime>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "shared/base/shared_block.h"

namespace plimsoll {
namespace {

class SegmentWait : public testing::Test {
 protected:
  SegmentWait()
      : block_(std::move(*SharedBlock::create("test", replica_segment_bytes(kShape)))),
        segment_(*init_replica_segment(block_.bytes(), kShape)) {}

  static constexpr ReplicaSegmentShape kShape = {2, 16, 1024, 0};
  SegmentCounter counter() { return {segment_.line(0).round, segment_.line(0).round_sleepers}; }

  SharedBlock block_;
  ReplicaSegment segment_;
};

TEST_F(SegmentWait, ComparesCountersAcrossTheirWrap) {
  EXPECT_TRUE(reached(5, 5));
  EXPECT_TRUE(reached(6, 5));
  EXPECT_FALSE(reached(4, 5));
  EXPECT_TRUE(reached(1, 0xFFFFFFFFU));
  EXPECT_FALSE(reached(0xFFFFFFFFU, 1));
}

TEST_F(SegmentWait, ReturnsAtOnceWhenTheCounterIsThere) {
  advance(counter(), 3);
  EXPECT_EQ(wait_for(segment_, counter(), 3, {false, Duration::zero()}), Waited::reached);
  EXPECT_EQ(wait_for(segment_, counter(), 2, {true, Duration::zero()}), Waited::reached);
}

TEST_F(SegmentWait, EndsAtItsTimeout) {
  for (const bool spin : {false, true}) {
    EXPECT_EQ(wait_for(segment_, counter(), 1, {spin, milliseconds(3)}), Waited::timed_out);
  }
  EXPECT_EQ(segment_.line(0).round_sleepers.load(), 0U);
}

Duration own_cpu_time() {
  timespec time = {};
  EXPECT_EQ(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
  return seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// With more ranks than cores, who spins keeps the core from the rank that it waits for.
TEST_F(SegmentWait, SleepsInsteadOfSpinningOn) {
  for (const bool spin : {false, true}) {
    const Duration before = own_cpu_time();
    EXPECT_EQ(wait_for(segment_, counter(), 1, {spin, milliseconds(250)}), Waited::timed_out);
    EXPECT_LT(own_cpu_time() - before, milliseconds(25)) << "spin " << spin;
  }
}

TEST_F(SegmentWait, WithoutSpinningItSleepsAtOnce) {
  const std::uint32_t target = segment_.line(0).round.load() + 1;
  rusage before = {};
  rusage after = {};
  ASSERT_EQ(::getrusage(RUSAGE_THREAD, &before), 0);
  for (int i = 0; i < 20; ++i) {
    // Shorter than the time that is spent spinning.
    EXPECT_EQ(wait_for(segment_, counter(), target, {false, std::chrono::microseconds(40)}),
              Waited::timed_out);
  }
  ASSERT_EQ(::getrusage(RUSAGE_THREAD, &after), 0);
  EXPECT_GE(after.ru_nvcsw - before.ru_nvcsw, 10);
}

TEST_F(SegmentWait, EndsWhenAnotherThreadAdvancesOrAborts) {
  for (const bool spin : {false, true}) {
    Waited waited = Waited::timed_out;
    const std::uint32_t target = segment_.line(0).round.load() + 1;
    std::thread waiter([&] {
      waited = wait_for(segment_, counter(), target, {spin, seconds(20)});
    });
    advance(counter(), target);
    waiter.join();
    EXPECT_EQ(waited, Waited::reached);
  }
  Waited waited = Waited::timed_out;
  std::thread waiter([&] { waited = wait_for(segment_, counter(), 99, {false, seconds(20)}); });
  segment_.abort("test");
  waiter.join();
  EXPECT_EQ(waited, Waited::aborted);
}

}  // namespace
}  // namespace plimsoll
