#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_features.h"
#include "tests/kernels/cpu/attention_steps.h"

namespace plimsoll {
namespace {

// Equal bits, NaN included.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

constexpr Shape kSmol = {9, 3, 64, 64};

class AttentionPath : public testing::TestWithParam<CpuPath> {
 protected:
  void SetUp() override {
    if (!supports(detect_cpu_features(), GetParam())) GTEST_SKIP() << "not on this CPU";
  }
  Attention::Options options() const { return {.path = GetParam()}; }
};

TEST_P(AttentionPath, MatchesADoublePrecisionLoopForManyShapes) {
  const Shape shapes[] = {{2, 2, 32, 32},         {3, 1, 64, 64},        {8, 2, 80, 40},
                          {8, 1, 128, 128, true}, {2, 1, 256, 64, true}, {9, 3, 64, 64, true},
                          {16, 1, 40, 40},        {5, 1, 72, 48},        {2, 1, 8, 8}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.heads) + " heads, " + std::to_string(shape.kv_heads) +
                 " kv heads, dim " + std::to_string(shape.head_dim));
    Attention attention(shape, {290}, options());
    attention.prefill(0, 290);
    // Around the borders of blocks and splits.
    for (const std::int64_t token : {0, 1, 15, 16, 17, 30, 31, 32, 63, 64, 255, 256, 257, 289}) {
      EXPECT_LT(attention.error(attention.sequence(0), token), 3e-6) << "token " << token;
    }
  }
}

TEST_P(AttentionPath, StoresRotatedKeysAndPlainValuesRoundedToHalf) {
  for (const bool interleaved : {false, true}) {
    const Shape shape = {4, 2, 80, 48, interleaved};
    Attention attention(shape, {70}, options());
    attention.prefill(0, 70);
    const Sequence& sequence = attention.sequence(0);
    for (std::int64_t token = 0; token < 70; ++token) {
      for (std::int64_t head = 0; head < 2; ++head) {
        const std::vector<double> key = attention.rotated(sequence, token, 4 + head);
        const float* value = sequence.qkv.data() + token * attention.qkv_width() + (6 + head) * 80;
        for (std::int64_t d = 0; d < 80; ++d) {
          const double k = key[static_cast<std::size_t>(d)];
          // Half a unit in the last of 11 bits, and the f32 rotation's own rounding.
          EXPECT_NEAR(attention.stored(sequence, token, head, d, false), k,
                      std::abs(k) * 0x1.01p-11 + 1e-6);
          EXPECT_NEAR(attention.stored(sequence, token, head, d, true), value[d],
                      std::abs(value[d]) * 0x1p-11 + 1e-7);
        }
      }
    }
  }
}

TEST_P(AttentionPath, GivesTheSameBitsHoweverAPromptIsChunked) {
  Attention whole(kSmol, {530}, options());
  whole.prefill(0, 530);
  EXPECT_LT(whole.error(whole.sequence(0), 529), 3e-6);
  for (const std::int64_t chunk : {1, 7, 32, 500}) {
    Attention chunked(kSmol, {530}, options());
    chunked.prefill(0, chunk);
    EXPECT_TRUE(same_bits(chunked.sequence(0).out, whole.sequence(0).out)) << "chunk " << chunk;
  }
}

TEST_P(AttentionPath, GivesTheSameBitsWhateverElseIsInTheBatch) {
  const std::vector<std::int64_t> lengths = {300, 40, 1, 333};
  Attention together(kSmol, lengths, options());
  together.step({{0, 100}, {3, 33}});
  together.step({{2, 1}, {3, 290}, {0, 5}, {1, 39}});
  together.step({{1, 1}, {0, 1}, {3, 1}});
  together.step({{3, 9}, {0, 194}});
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Attention alone(kSmol, lengths, options());
    alone.prefill(i, 64);
    EXPECT_TRUE(same_bits(together.sequence(i).out, alone.sequence(i).out)) << "sequence " << i;
  }
}

TEST_P(AttentionPath, GivesTheSameBitsForAnyNumberOfThreads) {
  const std::vector<std::int64_t> lengths = {1080, 600, 7};
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3, 5}) {
    Attention::Options with = options();
    with.threads = threads;
    Attention attention(kSmol, lengths, with);
    attention.step({{0, 1060}});
    attention.step({{0, 1}, {1, 597}, {2, 5}});
    // One long sequence alone: its splits go to different threads.
    for (int i = 0; i < 19; ++i) attention.step({{0, 1}});
    for (int i = 0; i < 2; ++i) attention.step({{1, 1}, {2, 1}});
    attention.step({{1, 1}});
    if (threads == 1) {
      for (std::size_t i = 0; i < 3; ++i) first.push_back(attention.sequence(i).out);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(same_bits(attention.sequence(i).out, first[i]))
          << threads << " threads, sequence " << i;
    }
  }
}

TEST_P(AttentionPath, NeverLooksAtUnusedSlots) {
  Attention clean(kSmol, {45, 290}, [this] {
    Attention::Options with = options();
    with.garbage = 0;
    return with;
  }());
  clean.step({{0, 45}, {1, 290}});
  for (const std::uint16_t garbage : {kHalfNan, kHalfInfinity, std::uint16_t{0xFBFF}}) {
    Attention::Options with = options();
    with.garbage = garbage;
    with.table_seed = 9;
    Attention dirty(kSmol, {45, 290}, with);
    dirty.step({{0, 45}, {1, 290}});
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(same_bits(dirty.sequence(i).out, clean.sequence(i).out));
    }
  }
}

TEST_P(AttentionPath, LaterTokensOfAChunkDoNotReachEarlierOnes) {
  Attention good(kSmol, {40}, options());
  good.prefill(0, 40);
  Attention bad(kSmol, {40}, options());
  Sequence& sequence = bad.sequence(0);
  for (std::int64_t i = 20 * bad.qkv_width(); i < 40 * bad.qkv_width(); ++i) {
    sequence.qkv[static_cast<std::size_t>(i)] = i % 2 == 0 ? 1e9F : NAN;
  }
  bad.prefill(0, 40);
  for (std::vector<float>* out : {&good.sequence(0).out, &sequence.out}) {
    out->resize(static_cast<std::size_t>(20 * good.out_width()));
  }
  EXPECT_TRUE(same_bits(good.sequence(0).out, sequence.out));
}

TEST_P(AttentionPath, HugeScoresStayFinite) {
  Attention::Options with = options();
  with.query_scale = 3000;
  Attention attention({4, 2, 64, 64}, {300}, with);
  attention.prefill(0, 300);
  for (const float value : attention.sequence(0).out) ASSERT_TRUE(std::isfinite(value));
  // Scores of thousands are summed in f32: their error is what the exponential makes of it.
  EXPECT_LT(attention.error(attention.sequence(0), 299), 2e-2);
}

TEST_P(AttentionPath, RunsWithoutRotation) {
  Attention attention({4, 2, 64, 0}, {33}, options());
  attention.prefill(0, 33);
  EXPECT_LT(attention.error(attention.sequence(0), 32), 3e-6);
}

TEST_P(AttentionPath, Int8KeysAndValuesAreReadAsStored) {
  const Shape shapes[] = {
      {2, 2, 32, 32},
      {8, 2, 80, 40},
      {2, 1, 256, 64, true},
      {16, 1, 40, 40},
      {.heads = 4, .kv_heads = 1, .head_dim = 64, .rope_dim = 64, .window = 100}};
  for (Shape shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.heads) + " heads, dim " + std::to_string(shape.head_dim));
    shape.kv_type = KvType::int8;
    Attention attention(shape, {290}, options());
    attention.prefill(0, 290);
    for (const std::int64_t token : {0, 1, 31, 32, 63, 255, 256, 257, 289}) {
      EXPECT_LT(attention.error(attention.sequence(0), token), 3e-6) << "token " << token;
    }
  }
}

TEST_P(AttentionPath, StoresInt8WithinHalfAStepOfTheLargestElement) {
  const Shape shape = {
      .heads = 4, .kv_heads = 2, .head_dim = 80, .rope_dim = 48, .kv_type = KvType::int8};
  Attention attention(shape, {70}, options());
  attention.prefill(0, 70);
  const Sequence& sequence = attention.sequence(0);
  const auto check = [&](const std::vector<double>& exact, std::int64_t token, std::int64_t head,
                         bool value) {
    double most = 0;
    for (const double x : exact) most = std::max(most, std::abs(x));
    for (std::int64_t d = 0; d < 80; ++d) {
      EXPECT_NEAR(attention.stored(sequence, token, head, d, value),
                  exact[static_cast<std::size_t>(d)], most / 127 / 2 + 1e-5);
    }
  };
  for (std::int64_t token = 0; token < 70; ++token) {
    for (std::int64_t head = 0; head < 2; ++head) {
      check(attention.rotated(sequence, token, 4 + head), token, head, false);
      check(attention.normed(sequence, token, 6 + head), token, head, true);
    }
  }
}

TEST_P(AttentionPath, Int8GivesTheSameBitsHoweverChunkedSharedAndThreaded) {
  Shape shape = kSmol;
  shape.kv_type = KvType::int8;
  const std::vector<std::int64_t> lengths = {530, 40};
  Attention whole(shape, lengths, options());
  whole.prefill(0, 530);
  for (const std::int64_t chunk : {1, 33, 250}) {
    Attention::Options with = options();
    with.threads = 3;
    with.table_seed = 4;
    Attention chunked(shape, lengths, with);
    chunked.step({{0, 30}, {1, 40}});
    chunked.prefill(0, chunk);
    EXPECT_TRUE(same_bits(chunked.sequence(0).out, whole.sequence(0).out)) << "chunk " << chunk;
  }
}

TEST_P(AttentionPath, AnInt8TokenThatIsNotFiniteShowsInWhatSeesIt) {
  Shape shape = {.heads = 2, .kv_heads = 1, .head_dim = 64, .rope_dim = 64};
  shape.kv_type = KvType::int8;
  for (const float bad : {std::nanf(""), INFINITY}) {
    Attention attention(shape, {40}, options());
    Sequence& sequence = attention.sequence(0);
    const std::int64_t value_of_20 = 20 * attention.qkv_width() + 3 * 64;
    sequence.qkv[static_cast<std::size_t>(value_of_20 + 5)] = bad;
    attention.prefill(0, 40);
    const auto is_finite = [&](std::int64_t token) {
      const auto begin = sequence.out.begin() + token * attention.out_width();
      return std::all_of(begin, begin + attention.out_width(),
                         [](float x) { return std::isfinite(x); });
    };
    EXPECT_TRUE(is_finite(19));
    EXPECT_FALSE(is_finite(20));
    EXPECT_FALSE(is_finite(39));
  }
}

TEST_P(AttentionPath, AQuerySeesTheKeysOfItsWindowAlone) {
  for (const std::int64_t window : {1, 2, 31, 32, 33, 100, 255, 256, 257, 512}) {
    SCOPED_TRACE("a window of " + std::to_string(window));
    const Shape shape = {
        .heads = 4, .kv_heads = 1, .head_dim = 64, .rope_dim = 64, .window = window};
    Attention attention(shape, {600}, options());
    attention.prefill(0, 600);
    for (const std::int64_t token : {0, 1, 30, 31, 32, 255, 256, 257, 300, 511, 512, 599}) {
      EXPECT_LT(attention.error(attention.sequence(0), token), 3e-6) << "token " << token;
    }
  }
}

TEST_P(AttentionPath, AWindowGivesTheSameBitsHoweverAPromptIsChunkedAndShared) {
  for (const std::int64_t window : {20, 300}) {
    const Shape shape = {
        .heads = 4, .kv_heads = 1, .head_dim = 64, .rope_dim = 64, .window = window};
    Attention whole(shape, {900}, options());
    whole.prefill(0, 900);
    for (const std::int64_t chunk : {1, 9, 250}) {
      Attention::Options with = options();
      with.threads = 3;
      Attention chunked(shape, {900}, with);
      chunked.prefill(0, chunk);
      EXPECT_TRUE(same_bits(chunked.sequence(0).out, whole.sequence(0).out))
          << "window " << window << ", chunk " << chunk;
    }
  }
}

TEST_P(AttentionPath, WhatLiesBeforeTheWindowIsNeverLookedAt) {
  const Shape shape = {.heads = 2, .kv_heads = 1, .head_dim = 64, .rope_dim = 64, .window = 50};
  Attention good(shape, {400}, options());
  good.prefill(0, 400);
  Attention bad(shape, {400}, options());
  Sequence& sequence = bad.sequence(0);
  for (std::int64_t i = 0; i < 300 * bad.qkv_width(); ++i) {
    sequence.qkv[static_cast<std::size_t>(i)] = NAN;
  }
  bad.prefill(0, 400);
  const auto seen = [&](const std::vector<float>& out) {
    return std::vector<float>(out.begin() + 349 * good.out_width(), out.end());
  };
  EXPECT_TRUE(same_bits(seen(good.sequence(0).out), seen(sequence.out)));
}

TEST_P(AttentionPath, AddsTheBiasAndNormsEachHeadBeforeTheRotation) {
  for (const bool norms : {false, true}) {
    const Shape shape = {
        .heads = 6, .kv_heads = 2, .head_dim = 64, .rope_dim = 64, .bias = true, .norms = norms};
    Attention attention(shape, {70}, options());
    attention.prefill(0, 70);
    const Sequence& sequence = attention.sequence(0);
    for (const std::int64_t token : {0, 33, 69}) {
      EXPECT_LT(attention.error(sequence, token), 5e-6) << "token " << token;
      const std::vector<double> key = attention.rotated(sequence, token, 7);
      const std::vector<double> value = attention.normed(sequence, token, 9);
      for (std::int64_t d = 0; d < 64; ++d) {
        const double k = key[static_cast<std::size_t>(d)], v = value[static_cast<std::size_t>(d)];
        EXPECT_NEAR(attention.stored(sequence, token, 1, d, false), k,
                    std::abs(k) * 0x1.01p-11 + 2e-6);
        EXPECT_NEAR(attention.stored(sequence, token, 1, d, true), v, std::abs(v) * 0x1p-11 + 1e-7);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, AttentionPath,
                         testing::Values(CpuPath::scalar, CpuPath::avx2, CpuPath::avx512),
                         [](const auto& tested) {
                           switch (tested.param) {
                             case CpuPath::avx2:
                               return "Avx2";
                             case CpuPath::avx512:
                               return "Avx512";
                             default:
                               return "Scalar";
                           }
                         });

}  // namespace
}  // namespace plimsoll
