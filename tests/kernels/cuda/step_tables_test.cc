#include "kernels/cuda/step_tables.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/stored_matrix.h"

namespace plimsoll::cuda {
namespace {

constexpr StepTableLimits kLimits{.tokens = 16, .table_entries = 32};

struct Filled {
  AlignedBytes memory{step_table_bytes(kLimits)};
  StepTables tables = StepTables::in(memory.span().data(), kLimits);
  StepCounts counts;
};

TEST(StepTables, SaysOfEachTokenWhereItIsAndOfWhichSequence) {
  const std::vector<std::int32_t> first = {7, 3};
  const std::vector<std::int32_t> second = {1, 5, 2, 9};
  const std::vector<SequenceRows> sequences = {
      {.row = 0, .tokens = 5, .position = 30, .blocks = first},
      {.row = 5, .tokens = 1, .position = 64, .blocks = second}};
  Filled filled;
  filled.counts = *fill_step_tables(sequences, 4, kLimits, filled.tables);
  EXPECT_EQ(filled.tables.positions[0], 30);
  EXPECT_EQ(filled.tables.positions[4], 34);
  EXPECT_EQ(filled.tables.positions[5], 64);
  EXPECT_EQ(filled.tables.table_begin[4], 0);
  EXPECT_EQ(filled.tables.table_begin[5], 2);
  EXPECT_EQ(filled.tables.tables[1], 3);
  EXPECT_EQ(filled.tables.tables[4], 2);
  EXPECT_EQ(filled.counts.table_entries, 5);  // the fourth block of the second holds nothing yet
  EXPECT_EQ(filled.counts.splits_max, 1);
  // Two tokens of four heads are eight rows.
  ASSERT_EQ(filled.counts.tiles, 4);
  EXPECT_EQ(filled.tables.tiles[1].row, 2);
  EXPECT_EQ(filled.tables.tiles[1].tokens, 2);
  EXPECT_EQ(filled.tables.tiles[1].position, 32);
  EXPECT_EQ(filled.tables.tiles[2].tokens, 1);
  EXPECT_EQ(filled.tables.tiles[3].table, 2);
}

TEST(StepTables, ATileOfMoreHeadsThanRowsHasOneToken) {
  const std::vector<std::int32_t> blocks = {0};
  const std::vector<SequenceRows> sequences = {
      {.row = 0, .tokens = 3, .position = 0, .blocks = blocks}};
  Filled filled;
  EXPECT_EQ(fill_step_tables(sequences, 12, kLimits, filled.tables)->tiles, 3);
}

TEST(StepTables, RefusesMoreThanThereIsRoomFor) {
  const std::vector<std::int32_t> blocks(40);
  const std::vector<SequenceRows> long_one = {
      {.row = 0, .tokens = 1, .position = 40 * 32 - 1, .blocks = blocks}};
  Filled filled;
  const auto refused = fill_step_tables(long_one, 1, kLimits, filled.tables);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("40 KV blocks"), std::string::npos)
      << refused.error().message;
  const std::vector<SequenceRows> wide_one = {
      {.row = 0, .tokens = 17, .position = 0, .blocks = blocks}};
  EXPECT_FALSE(fill_step_tables(wide_one, 1, kLimits, filled.tables));
}

}  // namespace
}  // namespace plimsoll::cuda
