#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/launches.h"
#include "tests/kernels/cpu/attention_steps.h"
#include "tests/kernels/cuda/cuda_backends.h"

namespace plimsoll {
namespace {

constexpr double kTolerance = 4e-6;

// Steps of attention on the CUDA backend.
struct OnCuda {
  explicit OnCuda(const Shape& shape, std::uint64_t seed = 2)
      : cuda({.tokens_max = 1100,
              .cols_max = 64,
              .rows_max = 64,
              .context_max = kContext,
              .heads_max = shape.heads,
              .head_dim = shape.head_dim},
             seed) {}
  Attention::Options options() {
    Attention::Options options;
    options.run = [this](const AttentionCall& given) {
      AttentionCall call = given;
      // Steps of one layer each: the backend takes them for new ones.
      cuda.backend->attention(call);
      cuda.finish();
    };
    return options;
  }
  HostCuda cuda;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(CudaAttention, MatchesADoublePrecisionLoopForManyShapes) {
  const Shape shapes[] = {{2, 2, 32, 32},  {3, 1, 64, 64},  {8, 2, 80, 40}, {8, 1, 128, 128, true},
                          {2, 1, 256, 64}, {12, 1, 40, 40}, {2, 1, 8, 8}};
  std::uint64_t seed = 0;
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.heads) + " heads, " + std::to_string(shape.kv_heads) +
                 " kv heads, dim " + std::to_string(shape.head_dim));
    OnCuda on(shape, seed++);
    Attention attention(shape, {70}, on.options());
    attention.prefill(0, 67);
    for (const std::int64_t token : {0, 1, 30, 31, 32, 63, 64, 66, 67, 69}) {
      EXPECT_LT(attention.error(attention.sequence(0), token), kTolerance) << "token " << token;
    }
  }
}

#if !defined(__SANITIZE_THREAD__)  // too slow; what may race in it does so in other tests
TEST(CudaAttention, SplitsOfTheirOwnGiveTheBitsOfAWholePrompt) {
  const Shape shape = {2, 1, 32, 32};
  OnCuda on(shape);
  // So many tokens that a block goes through all splits itself …
  Attention whole(shape, {532}, on.options());
  whole.prefill(0, 532);
  ASSERT_FALSE(cuda::splits_attention(532, 3));
  EXPECT_LT(whole.error(whole.sequence(0), 531), kTolerance);
  // … and so few that splits are blocks of their own.
  Attention decoded(shape, {532}, on.options());
  ASSERT_TRUE(cuda::splits_attention(300, 2) && cuda::splits_attention(230, 3));
  decoded.step({{0, 300}});
  decoded.step({{0, 1}});
  decoded.step({{0, 230}});
  decoded.step({{0, 1}});
  EXPECT_TRUE(same_bits(decoded.sequence(0).out, whole.sequence(0).out));
}
#endif

TEST(CudaAttention, GivesTheSameBitsWhateverElseIsInTheBatch) {
  const Shape shape = {3, 1, 64, 64};
  const std::vector<std::int64_t> lengths = {150, 40, 1, 133};
  OnCuda on(shape);
  Attention together(shape, lengths, on.options());
  together.step({{0, 100}, {3, 33}});
  together.step({{2, 1}, {3, 90}, {0, 5}, {1, 39}});
  together.step({{1, 1}, {0, 1}, {3, 1}});
  together.step({{3, 9}, {0, 44}});
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    OnCuda other(shape, 7);
    Attention alone(shape, lengths, other.options());
    alone.prefill(i, 64);
    EXPECT_TRUE(same_bits(together.sequence(i).out, alone.sequence(i).out)) << "sequence " << i;
  }
}

TEST(CudaAttention, NeverLooksAtUnusedSlots) {
  const Shape shape = {4, 2, 32, 32};
  OnCuda on(shape);
  Attention::Options with = on.options();
  with.garbage = 0;
  Attention clean(shape, {45, 70}, with);
  clean.step({{0, 45}, {1, 70}});
  for (const std::uint16_t garbage : {kHalfNan, kHalfInfinity}) {
    with.garbage = garbage;
    with.table_seed = 9;
    Attention dirty(shape, {45, 70}, with);
    dirty.step({{0, 45}, {1, 70}});
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(same_bits(dirty.sequence(i).out, clean.sequence(i).out));
    }
  }
}

TEST(CudaAttention, LaterTokensOfAChunkDoNotReachEarlierOnes) {
  const Shape shape = {2, 1, 32, 32};
  OnCuda on(shape);
  Attention good(shape, {40}, on.options());
  good.prefill(0, 40);
  Attention bad(shape, {40}, on.options());
  Sequence& sequence = bad.sequence(0);
  for (std::int64_t i = 21 * bad.qkv_width(); i < 40 * bad.qkv_width(); ++i) {
    sequence.qkv[static_cast<std::size_t>(i)] = i % 2 == 0 ? 1e9F : NAN;
  }
  bad.prefill(0, 40);
  for (std::vector<float>* out : {&good.sequence(0).out, &sequence.out}) {
    out->resize(static_cast<std::size_t>(21 * good.out_width()));
  }
  EXPECT_TRUE(same_bits(good.sequence(0).out, sequence.out));
}

#if !defined(__SANITIZE_THREAD__)  // likewise
TEST(CudaAttention, AQuerySeesTheKeysOfItsWindowAlone) {
  for (const std::int64_t window : {1, 33, 300}) {
    SCOPED_TRACE("a window of " + std::to_string(window));
    const Shape shape = {
        .heads = 2, .kv_heads = 1, .head_dim = 32, .rope_dim = 32, .window = window};
    OnCuda on(shape);
    Attention attention(shape, {560}, on.options());
    attention.step({{0, 558}});
    attention.step({{0, 1}});
    attention.step({{0, 1}});
    for (const std::int64_t token : {0, 30, 32, 255, 257, 300, 511, 512, 557, 558, 559}) {
      EXPECT_LT(attention.error(attention.sequence(0), token), kTolerance) << "token " << token;
    }
  }
}
#endif

TEST(CudaAttention, HugeScoresStayFinite) {
  const Shape shape = {4, 2, 64, 64};
  OnCuda on(shape);
  Attention::Options with = on.options();
  with.query_scale = 3000;
  Attention attention(shape, {70}, with);
  attention.prefill(0, 70);
  for (const float value : attention.sequence(0).out) ASSERT_TRUE(std::isfinite(value));
  EXPECT_LT(attention.error(attention.sequence(0), 69), 2e-2);
}

}  // namespace
}  // namespace plimsoll
