#include "worker/schedule/step_ring.h"

#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/shared_block.h"
#include "tests/support/run_ranks.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t kSeed = 4711;

std::vector<std::byte> message_of(std::uint32_t step, std::size_t bytes_max) {
  std::mt19937 random(kSeed + step);
  std::vector<std::byte> message(random() % (bytes_max + 1));
  for (std::byte& byte : message) byte = std::byte(random());
  return message;
}

class Ring {
 public:
  Ring(int ranks, Bytes bytes)
      : shape_{ranks, 2, bytes, 1},
        block_(std::move(*SharedBlock::create("test", replica_segment_bytes(shape_)))),
        segment_(*init_replica_segment(block_.bytes(), shape_)) {}

  ReplicaSegment segment() const { return segment_; }
  StepPublisher publisher(Duration deadline = seconds(20), bool spin = false) const {
    return {segment_, {spin, deadline}};
  }
  StepReceiver receiver(int rank, bool spin = false) const { return {segment_, {rank, spin}}; }

 private:
  ReplicaSegmentShape shape_;
  SharedBlock block_;
  ReplicaSegment segment_;
};

bool is_message(const std::optional<std::span<const std::byte>>& got,
                const std::vector<std::byte>& want) {
  return got.has_value() && std::equal(got->begin(), got->end(), want.begin(), want.end());
}

TEST(StepRing, EveryRankGetsEveryMessageOnceInOrder) {
  for (const bool spin : {false, true}) {
    const int ranks = spin ? 2 : 4;
    // A small ring and messages up to all of it: it wraps at every place, and often fills up.
    const Ring ring(ranks, 1024);
    EXPECT_TRUE(all_passed(run_ranks(ranks, [&](int rank) {
      constexpr std::uint32_t kSteps = 2000;
      if (rank == 0) {
        StepPublisher publisher = ring.publisher(seconds(20), spin);
        for (std::uint32_t step = 0; step < kSteps; ++step) {
          Status status = publisher.publish(message_of(step, 1020));
          ASSERT_TRUE(status.has_value()) << status.error().message;
        }
        return;
      }
      StepReceiver receiver = ring.receiver(rank, spin);
      for (std::uint32_t step = 0; step < kSteps; ++step) {
        const auto message = receiver.receive(seconds(20));
        ASSERT_TRUE(message.has_value());
        ASSERT_TRUE(is_message(*message, message_of(step, 1020)))
            << "rank " << rank << ", step " << step << " of seed " << kSeed;
      }
    })));
  }
}

// All that sleep, on either side.
std::uint32_t sleepers(const ReplicaSegment& segment) {
  std::uint32_t count = segment.ring().published_sleepers.load();
  for (int rank = 0; rank < segment.ranks(); ++rank) {
    count += segment.line(rank).taken_sleepers.load();
  }
  return count;
}

TEST(StepRing, APublisherThatWaitsForALaggingRankGoesOnAtEveryStepItTakes) {
  const Ring ring(3, 1024);
  constexpr std::uint32_t kSteps = 400;
  EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) {
    if (rank == 0) {
      StepPublisher publisher = ring.publisher();
      for (std::uint32_t step = 0; step < kSteps; ++step) {
        Status status = publisher.publish(message_of(step, 300));
        ASSERT_TRUE(status.has_value()) << status.error().message;
      }
      return;
    }
    StepReceiver receiver = ring.receiver(rank);
    const ReplicaSegment segment = ring.segment();
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      // Rank 2 takes a step only when the publisher sleeps because of it, or has ended.
      const TimePoint give_up = now() + seconds(10);
      while (rank == 2 && segment.line(2).taken_sleepers.load() == 0 &&
             segment.ring().published.load() < kSteps && now() < give_up) {
        std::this_thread::yield();
      }
      const auto message = receiver.receive(seconds(20));
      ASSERT_TRUE(message.has_value());
      ASSERT_TRUE(is_message(*message, message_of(step, 300))) << "rank " << rank << " " << step;
    }
  })));
}

TEST(StepRing, CountersWrapWithoutLosingAStep) {
  const Ring ring(2, 1024);
  ring.segment().ring().published.store(0xFFFFFFF0U);
  ring.segment().line(1).taken.store(0xFFFFFFF0U);
  StepPublisher publisher = ring.publisher(milliseconds(20));
  StepReceiver receiver = ring.receiver(1);
  for (std::uint32_t step = 0; step < 50; ++step) {
    ASSERT_TRUE(publisher.publish(message_of(step, 1000)).has_value());
    ASSERT_TRUE(is_message(*receiver.receive(Duration::zero()), message_of(step, 1000)));
  }
  EXPECT_EQ(publisher.published(), 34U);
  EXPECT_EQ(publisher.taken(1), 34U);
}

TEST(StepRing, ReceivesNothingUntilThereIsSomething) {
  const Ring ring(2, 1024);
  StepReceiver receiver = ring.receiver(1);
  const auto nothing = receiver.receive(milliseconds(2));
  ASSERT_TRUE(nothing.has_value());
  EXPECT_FALSE(nothing->has_value());
  StepPublisher publisher = ring.publisher();
  ASSERT_TRUE(publisher.publish(message_of(1, 100)).has_value());
  EXPECT_TRUE(is_message(*receiver.receive(Duration::zero()), message_of(1, 100)));
}

TEST(StepRing, ShowsHowFarEachRankIs) {
  const Ring ring(3, 1024);
  StepPublisher publisher = ring.publisher();
  StepReceiver receiver = ring.receiver(2);
  for (std::uint32_t step = 0; step < 5; ++step) {
    ASSERT_TRUE(publisher.publish(message_of(step, 10)).has_value());
  }
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(receiver.receive(Duration::zero())->has_value());
  EXPECT_EQ(publisher.published(), 5U);
  EXPECT_EQ(publisher.taken(1), 0U);
  EXPECT_EQ(publisher.taken(2), 3U);
}

TEST(StepRing, NamesTheRankThatLagsBehind) {
  const Ring ring(3, 1024);
  StepPublisher publisher = ring.publisher(milliseconds(20));
  StepReceiver receiver = ring.receiver(1);
  const std::vector<std::byte> message(600);
  ASSERT_TRUE(publisher.publish(message).has_value());
  ASSERT_TRUE(receiver.receive(Duration::zero())->has_value());
  Status status = publisher.publish(message);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::timed_out);
  EXPECT_NE(status.error().message.find("rank 2"), std::string::npos) << status.error().message;
}

TEST(StepRing, RefusesAMessageLongerThanItself) {
  const Ring ring(2, 1024);
  StepPublisher publisher = ring.publisher();
  EXPECT_TRUE(publisher.publish(std::vector<std::byte>(1020)).has_value());
  Status status = publisher.publish(std::vector<std::byte>(1021));
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::invalid);
}

TEST(StepRing, WithoutReceiversNothingFillsUp) {
  const Ring ring(1, 1024);
  StepPublisher publisher = ring.publisher(milliseconds(5));
  for (std::uint32_t step = 0; step < 100; ++step) {
    EXPECT_TRUE(publisher.publish(message_of(step, 1000)).has_value());
  }
}

TEST(StepRing, AnAbortEndsBothSidesWithItsReason) {
  const Ring ring(4, 1024);
  EXPECT_TRUE(all_passed(run_ranks(4, [&](int rank) {
    Status status;
    if (rank == 0) {
      StepPublisher publisher = ring.publisher();
      ASSERT_TRUE(publisher.publish(std::vector<std::byte>(1000)).has_value());
      status = publisher.publish(std::vector<std::byte>(1000));  // rank 3 never takes the first
    } else if (rank == 3) {
      const TimePoint give_up = now() + seconds(10);
      while (sleepers(ring.segment()) < 3 && now() < give_up) std::this_thread::yield();
      ring.segment().abort("rank 3 had enough");
      return;
    } else {
      StepReceiver receiver = ring.receiver(rank);
      ASSERT_TRUE(receiver.receive(seconds(20)).has_value());
      auto message = receiver.receive(seconds(20));
      ASSERT_FALSE(message.has_value());
      status = message.error();
    }
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, Code::unavailable);
    EXPECT_NE(status.error().message.find("rank 3 had enough"), std::string::npos)
        << status.error().message;
  })));
}

}  // namespace
}  // namespace plimsoll
