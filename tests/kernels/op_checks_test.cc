#include "kernels/op_checks.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/attention_plan.h"
#include "shared/model/head_limits.h"

namespace plimsoll {
namespace {

constexpr BackendLimits kLimits{.tokens_max = 8,
                                .cols_max = 64,
                                .rows_max = 64,
                                .context_max = 40,
                                .heads_max = 4,
                                .head_dim = 16};

alignas(64) std::byte memory[4096];

std::string words(const Status& status) { return status ? "" : status.error().message; }

StoredSlice good_slice() {
  return {.dtype = DType::q4_0,
          .bytes = std::span(memory).first(4 * 36),  // four rows of two blocks
          .cols_total = 64,
          .row_begin = 0,
          .row_end = 4,
          .col_begin = 0,
          .col_end = 64};
}

std::string refusal(const StoredSlice& slice) {
  return words(check_pack(slice, std::span(memory).first(16 * 36)));
}

TEST(CheckPack, AcceptsAWholeMatrix) { EXPECT_EQ(refusal(good_slice()), ""); }

TEST(CheckPack, RefusesBytesThatAreNotWholeRows) {
  StoredSlice slice = good_slice();
  slice.bytes = slice.bytes.first(143);
  EXPECT_NE(refusal(slice).find("not whole rows"), std::string::npos);
}

TEST(CheckPack, RefusesRowsAndColumnsOutsideTheMatrix) {
  StoredSlice slice = good_slice();
  slice.row_end = 5;
  EXPECT_NE(refusal(slice).find("rows [0, 5) of a matrix of 4"), std::string::npos);
  slice = good_slice();
  slice.row_begin = 4;
  EXPECT_NE(refusal(slice), "");
  slice = good_slice();
  slice.col_end = 96;
  EXPECT_NE(refusal(slice).find("columns [0, 96)"), std::string::npos);
  slice = good_slice();
  slice.col_begin = -32;
  EXPECT_NE(refusal(slice), "");
}

TEST(CheckPack, RefusesColumnsCutInsideABlock) {
  StoredSlice slice = good_slice();
  slice.col_end = 48;
  EXPECT_NE(refusal(slice).find("blocks of 32"), std::string::npos);
  slice.cols_total = 48;
  EXPECT_NE(refusal(slice).find("48 columns"), std::string::npos);
}

TEST(CheckPack, RefusesADestinationOfAnotherSizeOrAlignment) {
  EXPECT_NE(words(check_pack(good_slice(), std::span(memory).first(16 * 36 - 1))), "");
  EXPECT_NE(words(check_pack(good_slice(), std::span(memory).subspan(32, 16 * 36))), "");
}

class CheckLinear : public testing::Test {
 protected:
  CheckLinear() {
    weight.parts = {{DType::f32, 10, 32, memory}, {DType::f32, 10, 32, memory}};
    weight.rows = 20;
    weight.cols = 32;
    call = {.in = f32_view(numbers.data(), 2, 32),
            .norm = {},
            .weight = &weight,
            .out = f32_view(numbers.data(), 2, 20)};
  }
  std::string refused() const { return words(check_linear(call, kLimits)); }

  std::vector<float> numbers = std::vector<float>(1024);
  PackedMatrix weight;
  LinearCall call;
};

TEST_F(CheckLinear, AcceptsEveryEpilogue) {
  EXPECT_EQ(refused(), "");
  call.epilogue = Epilogue::add;
  EXPECT_EQ(refused(), "");
  call.epilogue = Epilogue::silu_mul;
  call.out.cols = 10;
  EXPECT_EQ(refused(), "");
}

TEST_F(CheckLinear, RefusesShapesThatDoNotFit) {
  call.in.cols = 31;
  EXPECT_NE(refused().find("in is [2, 31]"), std::string::npos);
  call.in.cols = 32;
  call.out.rows = 3;
  EXPECT_NE(refused().find("out is [3, 20]"), std::string::npos);
  call.out.rows = 2;
  call.out.stride = 19;
  EXPECT_NE(refused(), "");
  call.out.stride = 20;
  weight.rows = 21;
  EXPECT_NE(refused(), "");
}

TEST_F(CheckLinear, ChecksTheSumsOfPartialInPlaceOfTheOutput) {
  std::vector<double> sums(40);
  call.epilogue = Epilogue::partial;
  call.out = {};
  EXPECT_NE(refused().find("sums are [0, 0]"), std::string::npos);
  call.sums = sums_view(sums.data(), 2, 20);
  EXPECT_EQ(refused(), "");
  call.sums.data = nullptr;
  EXPECT_NE(refused().find("no memory"), std::string::npos);
}

TEST_F(CheckLinear, RefusesSegmentsThatCutBlocksOrAreNotAddedUp) {
  weight.parts[0].dtype = DType::q8_0;
  weight.segment_cols = 16;
  call.epilogue = Epilogue::add;
  EXPECT_NE(refused().find("whole blocks of 32"), std::string::npos);
  weight.segment_cols = 32;
  EXPECT_EQ(refused(), "");
  call.epilogue = Epilogue::store;
  EXPECT_NE(refused().find("segments"), std::string::npos);
}

TEST_F(CheckLinear, RefusesSiluOfUnequalParts) {
  weight.parts[1].rows = 11;
  weight.rows = 21;
  call.epilogue = Epilogue::silu_mul;
  EXPECT_NE(refused().find("gated"), std::string::npos);
}

TEST_F(CheckLinear, RefusesRowRangesOfStackedWeights) {
  call.row_end = 5;
  call.out.cols = 5;
  EXPECT_NE(refused(), "");
  weight.parts.pop_back();
  weight.rows = 10;
  EXPECT_EQ(refused(), "");
  call.row_end = 11;
  EXPECT_NE(refused().find("rows [0, 11)"), std::string::npos);
}

TEST_F(CheckLinear, RefusesMoreThanTheWorkspaceHolds) {
  call.in = f32_view(numbers.data(), 9, 32);
  call.out = f32_view(numbers.data(), 9, 20);
  EXPECT_NE(refused().find("workspace"), std::string::npos);
}

TEST(CheckEmbed, RefusesIdsOutsideTheTable) {
  std::vector<float> out(64);
  PackedMatrix table;
  table.parts = {{DType::f32, 10, 32, memory}};
  table.rows = 10;
  table.cols = 32;
  std::vector<std::int32_t> ids = {9, 0};
  EXPECT_EQ(words(check_embed(table, ids, f32_view(out.data(), 2, 32))), "");
  EXPECT_NE(words(check_embed(table, ids, f32_view(out.data(), 1, 32))), "");
  ids[1] = 10;
  EXPECT_NE(words(check_embed(table, ids, f32_view(out.data(), 2, 32))).find("id 10"),
            std::string::npos);
  ids[1] = -1;
  EXPECT_NE(words(check_embed(table, ids, f32_view(out.data(), 2, 32))), "");
}

class CheckAttention : public testing::Test {
 protected:
  CheckAttention() {
    cache = {.data = memory, .blocks = 3, .layers = 2, .kv_heads = 2, .head_dim = 16};
    sequences = {{.row = 0, .tokens = 2, .position = 31, .blocks = blocks},
                 {.row = 2, .tokens = 1, .position = 0, .blocks = blocks}};
    call = {.qkv = f32_view(numbers.data(), 3, 128),
            .sequences = sequences,
            .cache = &cache,
            .layer = 1,
            .heads = 4,
            .scale = 0.25F,
            .rope = {.cos = numbers.data(),
                     .sin = numbers.data(),
                     .positions = 64,
                     .half_dim = 8,
                     .interleaved = false},
            .out = f32_view(numbers.data(), 3, 64)};
  }
  std::string refused() const { return words(check_attention(call, kLimits)); }

  std::vector<float> numbers = std::vector<float>(1024);
  std::vector<std::int32_t> blocks = {2, 0};
  KvCache cache;
  std::vector<SequenceRows> sequences;
  AttentionCall call;
};

TEST_F(CheckAttention, AcceptsSequencesThatFollowEachOther) { EXPECT_EQ(refused(), ""); }

TEST_F(CheckAttention, RefusesBlockTablesThatAreShortOrPointOutside) {
  sequences[0].blocks = std::span(blocks).first(1);
  EXPECT_NE(refused().find("block table of 1"), std::string::npos);
  sequences[0].blocks = blocks;
  blocks[1] = 3;
  EXPECT_NE(refused().find("KV block 3"), std::string::npos);
}

TEST_F(CheckAttention, RefusesGapsAndLeftOverRows) {
  sequences[1].row = 3;
  EXPECT_NE(refused(), "");
  sequences[1].row = 2;
  call.sequences = std::span(sequences).first(1);
  EXPECT_NE(refused().find("cover"), std::string::npos);
}

TEST_F(CheckAttention, RefusesPositionsBeyondTheContext) {
  sequences[0].position = 39;
  EXPECT_NE(refused().find("context of 40"), std::string::npos);
}

TEST_F(CheckAttention, RefusesHeadsThatDoNotFit) {
  call.heads = 3;
  EXPECT_NE(refused(), "");
  call.heads = 4;
  call.layer = 2;
  EXPECT_NE(refused().find("layer 2 of 2"), std::string::npos);
  call.layer = 1;
  call.rope.half_dim = 9;
  EXPECT_NE(refused().find("rotary"), std::string::npos);
}

TEST_F(CheckAttention, RefusesShapesThatNoKernelRuns) {
  BackendLimits limits = kLimits;
  limits.heads_max = 2 * (kHeadsPerKvHeadMax + 1);
  call.heads = limits.heads_max;
  EXPECT_NE(words(check_attention(call, limits)).find("98 heads on 2 KV heads"), std::string::npos);
  call.heads = 4;
  for (const std::int64_t head_dim : {12, 264}) {
    limits.head_dim = head_dim;
    cache.head_dim = head_dim;
    EXPECT_NE(words(check_attention(call, limits)).find("multiples of 8 up to 256"),
              std::string::npos);
  }
}

// The tile's rows are what limits the heads that share a KV head.
static_assert(kTileRows == kHeadsPerKvHeadMax);

}  // namespace
}  // namespace plimsoll
