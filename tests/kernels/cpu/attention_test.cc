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

namespace plimsoll {
namespace {

constexpr std::int64_t kContext = 1088;
constexpr std::uint16_t kHalfNan = 0x7E00;
constexpr std::uint16_t kHalfInfinity = 0x7C00;

struct Shape {
  std::int64_t heads, kv_heads, head_dim;
  std::int64_t rope_dim;
  bool interleaved = false;
  std::int64_t window = 0;
  bool bias = false;
  bool norms = false;
};

double from_half(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const double mantissa = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25));
}

// A sequence with random input rows, and what attention gave for each of them.
struct Sequence {
  std::vector<float> qkv;            // [tokens, (heads + 2 kv_heads) * head_dim]
  std::vector<float> out;            // [tokens, heads * head_dim]
  std::vector<std::int32_t> blocks;  // block table
  std::int64_t done = 0;             // tokens that went through attention
};

struct Piece {
  std::size_t sequence;
  std::int64_t tokens;
};

// One cache, a few sequences, and steps over them.
class Attention {
 public:
  struct Options {
    CpuPath path = CpuPath::scalar;
    int threads = 1;
    std::uint16_t garbage = kHalfNan;  // in every cache slot before it is stored
    float query_scale = 1;
    std::uint32_t table_seed = 1;
  };

  Attention(const Shape& shape, const std::vector<std::int64_t>& lengths, const Options& options)
      : shape_(shape),
        options_(options),
        team_({.threads = options.threads, .cpus = {}, .spin = false}) {
    EXPECT_TRUE(team_.status().has_value());
    make_rope();
    make_vectors();
    make_sequences(lengths);
    cache_ = {nullptr, static_cast<std::int64_t>(sequences_.size()) * kContext / kKvBlockTokens,
              kLayers, shape.kv_heads, shape.head_dim};
    const Bytes bytes = cache_.blocks * cache_.block_bytes();
    cache_memory_.assign(static_cast<std::size_t>(bytes / 2), options.garbage);
    cache_.data = reinterpret_cast<std::byte*>(cache_memory_.data());
    BackendLimits limits;
    limits.context_max = kContext;
    limits.head_dim = shape.head_dim;
    scratch_.resize(static_cast<std::size_t>(attention_scratch_bytes(limits, options.threads)));
  }

  void step(const std::vector<Piece>& pieces) {
    std::vector<SequenceRows> rows;
    std::vector<float> qkv;
    for (const Piece& piece : pieces) {
      const Sequence& sequence = sequences_[piece.sequence];
      rows.push_back({static_cast<std::int64_t>(qkv.size()) / qkv_width(), piece.tokens,
                      sequence.done, sequence.blocks});
      const auto begin = sequence.qkv.begin() + sequence.done * qkv_width();
      qkv.insert(qkv.end(), begin, begin + piece.tokens * qkv_width());
    }
    const std::int64_t tokens = static_cast<std::int64_t>(qkv.size()) / qkv_width();
    std::vector<float> out(static_cast<std::size_t>(tokens * out_width()), NAN);
    AttentionCall call;
    call.qkv = f32_view(qkv.data(), tokens, qkv_width());
    call.sequences = rows;
    call.cache = &cache_;
    call.layer = kLayer;
    call.heads = shape_.heads;
    call.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.head_dim)));
    call.window = shape_.window;
    if (shape_.bias) call.bias = bias_.data();
    if (shape_.norms) {
      call.q_norm = {q_norm_.data(), kEps};
      call.k_norm = {k_norm_.data(), kEps};
    }
    call.rope = {cos_.data(), sin_.data(), kContext, shape_.rope_dim / 2, shape_.interleaved};
    call.out = f32_view(out.data(), tokens, out_width());
    run_attention(call, attention_kernel(options_.path), team_, scratch_);
    auto from = out.begin();
    for (const Piece& piece : pieces) {
      Sequence& sequence = sequences_[piece.sequence];
      std::copy_n(from, piece.tokens * out_width(),
                  sequence.out.begin() + sequence.done * out_width());
      from += piece.tokens * out_width();
      sequence.done += piece.tokens;
    }
  }

  // The whole sequence in chunks of that many tokens.
  void prefill(std::size_t index, std::int64_t chunk) {
    const auto length = static_cast<std::int64_t>(sequences_[index].qkv.size()) / qkv_width();
    while (sequences_[index].done < length) {
      step({{index, std::min(chunk, length - sequences_[index].done)}});
    }
  }

  Sequence& sequence(std::size_t index) { return sequences_[index]; }
  std::int64_t qkv_width() const { return (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim; }
  std::int64_t out_width() const { return shape_.heads * shape_.head_dim; }

  double stored(const Sequence& sequence, std::int64_t token, std::int64_t head, std::int64_t d,
                bool value) const {
    const std::int64_t dim = shape_.head_dim;
    const std::int64_t slot = token % kKvBlockTokens;
    const std::int64_t page = sequence.blocks[static_cast<std::size_t>(token / kKvBlockTokens)] *
                                  cache_.block_bytes() / 2 +
                              (kLayer * shape_.kv_heads + head) * 2 * dim * kKvBlockTokens;
    const std::int64_t at = value ? (kKvBlockTokens + slot) * dim + d : d * kKvBlockTokens + slot;
    return from_half(cache_memory_[static_cast<std::size_t>(page + at)]);
  }

  // One head of a row with its bias, normed, in double precision.
  std::vector<double> normed(const Sequence& sequence, std::int64_t token,
                             std::int64_t head) const {
    const float* in = sequence.qkv.data() + token * qkv_width() + head * shape_.head_dim;
    std::vector<double> out(in, in + shape_.head_dim);
    for (std::size_t d = 0; shape_.bias && d < out.size(); ++d) {
      out[d] += static_cast<double>(bias_[static_cast<std::size_t>(head) * out.size() + d]);
    }
    if (!shape_.norms || head >= shape_.heads + shape_.kv_heads) return out;
    const double squares = std::inner_product(out.begin(), out.end(), out.begin(), 0.0);
    const double rms = std::sqrt(squares / static_cast<double>(out.size()) + double{kEps});
    const std::vector<float>& weight = head < shape_.heads ? q_norm_ : k_norm_;
    for (std::size_t d = 0; d < out.size(); ++d) out[d] *= static_cast<double>(weight[d]) / rms;
    return out;
  }

  // The same, rotated.
  std::vector<double> rotated(const Sequence& sequence, std::int64_t token,
                              std::int64_t head) const {
    const std::vector<double> in = normed(sequence, token, head);
    std::vector<double> out = in;
    const std::int64_t half = shape_.rope_dim / 2;
    for (std::int64_t j = 0; j < half; ++j) {
      const double c = cos_[static_cast<std::size_t>(token * half + j)];
      const double s = sin_[static_cast<std::size_t>(token * half + j)];
      const auto a = static_cast<std::size_t>(shape_.interleaved ? 2 * j : j);
      const auto b = static_cast<std::size_t>(shape_.interleaved ? 2 * j + 1 : j + half);
      out[a] = in[a] * c - in[b] * s;
      out[b] = in[b] * c + in[a] * s;
    }
    return out;
  }

  // Attention of one row and query head over the keys and values that the cache holds.
  std::vector<double> expected(const Sequence& sequence, std::int64_t token,
                               std::int64_t head) const {
    const std::int64_t kv_head = head / (shape_.heads / shape_.kv_heads);
    const std::vector<double> query = rotated(sequence, token, head);
    std::vector<double> weights(static_cast<std::size_t>(token) + 1, -INFINITY);
    const std::int64_t first =
        shape_.window == 0 ? 0 : std::max<std::int64_t>(token + 1 - shape_.window, 0);
    for (std::int64_t t = first; t <= token; ++t) {
      double score = 0;
      for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
        score += query[static_cast<std::size_t>(d)] * stored(sequence, t, kv_head, d, false);
      }
      weights[static_cast<std::size_t>(t)] =
          score / std::sqrt(static_cast<double>(shape_.head_dim));
    }
    const double max = *std::max_element(weights.begin(), weights.end());
    for (double& weight : weights) weight = std::exp(weight - max);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<double> out(static_cast<std::size_t>(shape_.head_dim));
    for (std::int64_t t = first; t <= token; ++t) {
      for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
        out[static_cast<std::size_t>(d)] +=
            weights[static_cast<std::size_t>(t)] / sum * stored(sequence, t, kv_head, d, true);
      }
    }
    return out;
  }

  // Largest difference of the row's output from `expected`.
  double error(const Sequence& sequence, std::int64_t token) const {
    double worst = 0;
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      const std::vector<double> want = expected(sequence, token, head);
      const float* got = sequence.out.data() + token * out_width() + head * shape_.head_dim;
      for (std::size_t d = 0; d < want.size(); ++d) {
        const double difference = std::abs(got[d] - want[d]);
        worst = difference <= worst ? worst : difference;  // NaN is worst
      }
    }
    return worst;
  }

 private:
  static constexpr float kEps = 1e-5F;
  static constexpr std::int64_t kLayers = 2;
  static constexpr std::int64_t kLayer = 1;

  void make_rope() {
    const std::int64_t half = shape_.rope_dim / 2;
    for (std::int64_t position = 0; position < kContext; ++position) {
      for (std::int64_t j = 0; j < half; ++j) {
        const double angle = static_cast<double>(position) *
                             std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(half));
        cos_.push_back(static_cast<float>(std::cos(angle)));
        sin_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }

  void make_vectors() {
    std::mt19937 random(77);
    std::normal_distribution<float> normal;
    bias_.resize(static_cast<std::size_t>(qkv_width()));
    q_norm_.resize(static_cast<std::size_t>(shape_.head_dim));
    k_norm_.resize(q_norm_.size());
    for (std::vector<float>* vector : {&bias_, &q_norm_, &k_norm_}) {
      for (float& value : *vector) value = 1 + normal(random) / 2;
    }
  }

  void make_sequences(const std::vector<std::int64_t>& lengths) {
    std::vector<std::int32_t> free(lengths.size() * kContext / kKvBlockTokens);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), std::mt19937(options_.table_seed));
    std::uint32_t seed = 100;
    for (const std::int64_t length : lengths) {
      std::mt19937 random(seed++);
      std::normal_distribution<float> normal;
      Sequence& sequence = sequences_.emplace_back();
      sequence.qkv.resize(static_cast<std::size_t>(length * qkv_width()));
      sequence.out.resize(static_cast<std::size_t>(length * out_width()), NAN);
      for (std::size_t i = 0; i < sequence.qkv.size(); ++i) {
        const bool query = static_cast<std::int64_t>(i) % qkv_width() < out_width();
        sequence.qkv[i] = normal(random) * (query ? options_.query_scale : 1);
      }
      for (std::int64_t b = 0; b * kKvBlockTokens < length; ++b) {
        sequence.blocks.push_back(free.back());
        free.pop_back();
      }
    }
  }

  Shape shape_;
  Options options_;
  ThreadTeam team_;
  std::vector<float> cos_, sin_;
  std::vector<float> bias_, q_norm_, k_norm_;
  std::vector<Sequence> sequences_;
  std::vector<std::uint16_t> cache_memory_;
  KvCache cache_;
  std::vector<std::byte> scratch_;
};

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
