#include "shared/base/replica_segment.h"

#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

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
