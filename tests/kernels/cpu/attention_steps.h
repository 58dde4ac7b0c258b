// AttentionSteps: sequences with random rows, steps of attention over them, and what a loop in
// double precision makes of the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/attention.h"

namespace plimsoll {

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
  KvType kv_type = KvType::f16;
};

inline double from_half(std::uint16_t half) {
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
    std::function<void(const AttentionCall&)> run = {};  // in place of the CPU's kernels
  };

  Attention(const Shape& shape, const std::vector<std::int64_t>& lengths, const Options& options)
      : shape_(shape),
        options_(options),
        team_({.threads = options.threads, .cpus = {}, .spin = false}) {
    EXPECT_TRUE(team_.status().has_value());
    make_rope();
    make_vectors();
    make_sequences(lengths);
    cache_ = {
        nullptr,        static_cast<std::int64_t>(sequences_.size()) * kContext / kKvBlockTokens,
        kLayers,        shape.kv_heads,
        shape.head_dim, shape.kv_type};
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
    if (options_.run) {
      options_.run(call);
    } else {
      run_attention(call, attention_kernel(options_.path), team_, scratch_);
    }
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
    const std::byte* page =
        cache_.data +
        sequence.blocks[static_cast<std::size_t>(token / kKvBlockTokens)] * cache_.block_bytes() +
        (kLayer * shape_.kv_heads + head) * cache_.head_bytes();
    const std::int64_t at = value ? (kKvBlockTokens + slot) * dim + d : d * kKvBlockTokens + slot;
    if (shape_.kv_type == KvType::f16) {
      return from_half(reinterpret_cast<const std::uint16_t*>(page)[at]);
    }
    return static_cast<double>(reinterpret_cast<const std::int8_t*>(page)[at]) *
           scale_of(page, slot + (value ? kKvBlockTokens : 0));
  }

  // Of an int8 page: the keys' scales, then the values'.
  double scale_of(const std::byte* page, std::int64_t index) const {
    const std::byte* scales = page + 2 * shape_.head_dim * kKvBlockTokens;
    return reinterpret_cast<const float*>(scales)[index];
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

}  // namespace plimsoll
