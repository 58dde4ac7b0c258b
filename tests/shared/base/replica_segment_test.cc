#include "shared/base/replica_segment.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/clock.h"
#include "shared/base/shared_block.h"

namespace plimsoll {
namespace {

const ReplicaSegmentShape kShape = {3, 1000, 4096, 17};

SharedBlock block_of(Bytes bytes) { return std::move(*SharedBlock::create("test", bytes)); }

TEST(ReplicaSegment, AttachesWithTheShapeThatItWasLaidOutWith) {
  const SharedBlock block = block_of(replica_segment_bytes(kShape));
  ASSERT_TRUE(init_replica_segment(block.bytes(), kShape).has_value());
  const Result<ReplicaSegment> segment = ReplicaSegment::attach(block.bytes());
  ASSERT_TRUE(segment.has_value());
  EXPECT_EQ(segment->ranks(), 3);
  EXPECT_EQ(segment->slot_floats(), 1000);
  EXPECT_EQ(segment->generation(), 17U);
  EXPECT_EQ(segment->ring_memory().size(), 4096U);
  EXPECT_FALSE(segment->aborted());
  EXPECT_EQ(segment->abort_reason(), "");
}

TEST(ReplicaSegment, PartsDoNotOverlapAndStayInside) {
  const SharedBlock block = block_of(replica_segment_bytes(kShape));
  const Result<ReplicaSegment> segment = init_replica_segment(block.bytes(), kShape);
  ASSERT_TRUE(segment.has_value());
  // Every part is filled with its own byte; then each must still hold its own.
  std::vector<std::span<std::byte>> parts;
  for (int rank = 0; rank < 3; ++rank) {
    parts.push_back({reinterpret_cast<std::byte*>(&segment->line(rank)), sizeof(RankLine)});
    for (const std::uint32_t round : {0U, 1U}) {
      parts.push_back(std::as_writable_bytes(segment->slot(rank, round)));
    }
  }
  parts.push_back({reinterpret_cast<std::byte*>(&segment->ring()), sizeof(RingLine)});
  parts.push_back(segment->ring_memory());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ASSERT_GE(parts[i].data(), block.bytes().data());
    ASSERT_LE(parts[i].data() + parts[i].size(), block.bytes().data() + block.bytes().size());
    std::fill(parts[i].begin(), parts[i].end(), std::byte(i + 1));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].front(), std::byte(i + 1));
    EXPECT_EQ(parts[i].back(), std::byte(i + 1));
  }
  EXPECT_TRUE(ReplicaSegment::attach(block.bytes()).has_value());
}

TEST(ReplicaSegment, AMarkSaysWhereARankIs) {
  const SharedBlock block = block_of(replica_segment_bytes(kShape));
  const Result<ReplicaSegment> segment = init_replica_segment(block.bytes(), kShape);
  ASSERT_TRUE(segment);
  EXPECT_EQ(describe_mark(segment->mark(1)), "");
  RankLine& line = segment->line(1);
  line.activity = Activity::loading;
  EXPECT_EQ(describe_mark(segment->mark(1)), "while loading");
  line.activity = Activity::prefill;
  line.steps = 17;
  EXPECT_EQ(describe_mark(segment->mark(1)), "in step 17 (prefill)");
  line.ops[1] = {OpKind::gather, 2, 4, 512};
  line.round = 5;
  EXPECT_EQ(describe_mark(segment->mark(1)),
            "in step 17 (prefill), collective 5: gather [4, 512] chunk 2");
  line.activity = Activity::idle;
  line.ops[1] = {OpKind::barrier, 0, 0, 0};
  EXPECT_EQ(describe_mark(segment->mark(1)), "after step 17 (idle), collective 5: barrier");
}

TEST(ReplicaSegment, RefusesForeignAndShortMemory) {
  const SharedBlock block = block_of(replica_segment_bytes(kShape));
  EXPECT_FALSE(ReplicaSegment::attach(block.bytes()).has_value());  // zeros
  ASSERT_TRUE(init_replica_segment(block.bytes(), kShape).has_value());
  EXPECT_FALSE(ReplicaSegment::attach(block.bytes().first(100)).has_value());
  EXPECT_FALSE(ReplicaSegment::attach(block.bytes().first(8192)).has_value());
  EXPECT_FALSE(init_replica_segment(block.bytes().first(8192), kShape).has_value());
}

TEST(ReplicaSegment, RefusesImpossibleShapes) {
  const SharedBlock block = block_of(kMiB);
  for (const ReplicaSegmentShape& shape :
       {ReplicaSegmentShape{0, 10, 4096, 0}, ReplicaSegmentShape{65, 10, 4096, 0},
        ReplicaSegmentShape{2, 0, 4096, 0}, ReplicaSegmentShape{2, 10, 1, 0}}) {
    EXPECT_FALSE(init_replica_segment(block.bytes(), shape).has_value());
  }
}

TEST(ReplicaSegment, KeepsTheFirstReasonOfAnAbort) {
  const SharedBlock block = block_of(replica_segment_bytes(kShape));
  const Result<ReplicaSegment> segment = init_replica_segment(block.bytes(), kShape);
  ASSERT_TRUE(segment.has_value());
  segment->abort("rank 2 died of signal 9");
  segment->abort("something later");
  EXPECT_TRUE(segment->aborted());
  EXPECT_EQ(segment->abort_reason(), "rank 2 died of signal 9");
}

// Several ranks may find the same fault at once: none may be told less than the reason.
TEST(ReplicaSegment, EveryOneOfSeveralAbortersReadsTheSameReason) {
  const SharedBlock block = block_of(replica_segment_bytes(kShape));
  constexpr int kAborters = 4;
  for (int attempt = 0; attempt < 300; ++attempt) {
    std::fill(block.bytes().begin(), block.bytes().end(), std::byte{0});
    const Result<ReplicaSegment> segment = init_replica_segment(block.bytes(), kShape);
    ASSERT_TRUE(segment.has_value());
    std::vector<std::string> reasons(kAborters);
    std::atomic<int> ready{0};
    std::vector<std::thread> aborters;
    for (int i = 0; i < kAborters; ++i) {
      aborters.emplace_back([&, i] {
        ++ready;
        while (ready.load() < kAborters) std::this_thread::yield();
        segment->abort(std::string(400, static_cast<char>('a' + i)));
        reasons[static_cast<std::size_t>(i)] = segment->abort_reason();
      });
    }
    for (std::thread& aborter : aborters) aborter.join();
    for (const std::string& reason : reasons) {
      ASSERT_EQ(reason, reasons[0]) << "attempt " << attempt;
      ASSERT_EQ(reason.size(), 400U);
    }
  }
}

// The abort word: what an abort changes first in the header.
std::atomic<std::uint32_t>& abort_word(std::span<std::byte> memory, const ReplicaSegment& segment) {
  const std::vector<std::byte> before(memory.begin(), memory.end());
  segment.abort("");
  const auto differs = std::mismatch(before.begin(), before.end(), memory.begin()).second;
  return reinterpret_cast<std::atomic<std::uint32_t>&>(*differs);
}

TEST(ReplicaSegment, AnAbortWhoseCallerDiedHalfwayIsCompletedByTheNext) {
  const SharedBlock block = block_of(replica_segment_bytes(kShape));
  const Result<ReplicaSegment> segment = init_replica_segment(block.bytes(), kShape);
  ASSERT_TRUE(segment.has_value());
  abort_word(block.bytes(), *segment).store(1);  // someone writes its reason
  EXPECT_FALSE(segment->aborted());
  EXPECT_EQ(segment->abort_reason(), "");
  const TimePoint start = now();
  segment->abort("rank 2 died of signal 9");
  EXPECT_LT(now() - start, seconds(5));
  EXPECT_TRUE(segment->aborted());
  EXPECT_NE(segment->abort_reason().find("ended before it gave its reason"), std::string::npos)
      << segment->abort_reason();
}

TEST(ReplicaSegment, CutsAReasonThatIsTooLong) {
  const SharedBlock block = block_of(replica_segment_bytes(kShape));
  const Result<ReplicaSegment> segment = init_replica_segment(block.bytes(), kShape);
  ASSERT_TRUE(segment.has_value());
  segment->abort(std::string(10'000, 'x'));
  EXPECT_GE(segment->abort_reason().size(), 200U);
  EXPECT_LE(segment->abort_reason().size(), 1000U);
}

}  // namespace
}  // namespace plimsoll
