// NaiveLlama: the Llama forward pass in double precision, straight from the formulas, for one
// sequence; slow. K and V are rounded to f16, as the cache stores them.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/dequantise.h"
#include "shared/base/half.h"
#include "shared/model/gguf.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

class NaiveLlama {
 public:
  using Vector = std::vector<double>;

  NaiveLlama(const GgufFile& file, const ModelSpec& spec) : spec_(spec) {
    for (const auto& [name, info] : spec.weights.all()) {
      std::vector<float> values(static_cast<std::size_t>(info.rows() * info.cols()));
      dequantise(info.dtype, file.bytes_of(info).data(), info.rows() * info.cols(), values.data());
      weights_[name] = std::move(values);
    }
  }

  // Logits after each token.
  std::vector<Vector> run(std::span<const std::int32_t> tokens) const {
    std::vector<Vector> x;
    for (const std::int32_t token : tokens) x.push_back(row("token_embd.weight", token));
    for (std::int64_t layer = 0; layer < spec_.layers; ++layer) run_layer(layer, x);
    std::vector<Vector> logits;
    for (const Vector& value : x) {
      const Vector h = norm(value, weights_.at("output_norm.weight"));
      logits.push_back(times(spec_.tied_head ? "token_embd.weight" : "output.weight", h));
    }
    return logits;
  }

 private:
  static std::size_t at(std::int64_t value) { return static_cast<std::size_t>(value); }

  Vector row(const std::string& name, std::int64_t index) const {
    const auto& values = weights_.at(name);
    const auto begin = values.begin() + index * spec_.hidden;
    return {begin, begin + spec_.hidden};
  }

  Vector norm(const Vector& x, const std::vector<float>& weight) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + spec_.norm_eps);
    Vector result(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) result[i] = x[i] * scale * weight[i];
    return result;
  }

  Vector times(const std::string& name, const Vector& x) const {
    const auto& weight = weights_.at(name);
    Vector result(weight.size() / x.size());
    for (std::size_t row = 0; row < result.size(); ++row) {
      double sum = 0;
      for (std::size_t col = 0; col < x.size(); ++col) sum += weight[row * x.size() + col] * x[col];
      result[row] = sum;
    }
    return result;
  }

  void rotate(Vector& heads, std::size_t position) const {
    const std::size_t dim = at(spec_.head_dim);
    const std::size_t half = at(spec_.rope_dim) / 2;
    const auto freqs = weights_.find("rope_freqs.weight");
    for (std::size_t head = 0; head < heads.size() / dim; ++head) {
      for (std::size_t j = 0; j < half; ++j) {
        double turn = std::pow(spec_.rope_base, -2.0 * static_cast<double>(j) /
                                                    static_cast<double>(spec_.rope_dim)) /
                      spec_.rope_scale;
        if (freqs != weights_.end()) turn /= freqs->second[j];
        const bool interleaved = spec_.rope_pairing == RopePairing::interleaved;
        double& a = heads[head * dim + (interleaved ? 2 * j : j)];
        double& b = heads[head * dim + (interleaved ? 2 * j + 1 : j + half)];
        const double angle = static_cast<double>(position) * turn;
        const double old_a = a;
        a = old_a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + old_a * std::sin(angle);
      }
    }
  }

  static void round_to_half(Vector& values) {
    for (double& value : values) value = half_to_float(float_to_half(static_cast<float>(value)));
  }

  void run_layer(std::int64_t layer, std::vector<Vector>& x) const {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    std::vector<Vector> keys, values;
    for (std::size_t position = 0; position < x.size(); ++position) {
      const Vector h = norm(x[position], weights_.at(blk + "attn_norm.weight"));
      Vector q = times(blk + "attn_q.weight", h);
      keys.push_back(times(blk + "attn_k.weight", h));
      values.push_back(times(blk + "attn_v.weight", h));
      rotate(q, position);
      rotate(keys.back(), position);
      round_to_half(keys.back());
      round_to_half(values.back());
      add(x[position], times(blk + "attn_output.weight", attend(q, keys, values)));
    }
    for (Vector& value : x) {
      const Vector h = norm(value, weights_.at(blk + "ffn_norm.weight"));
      Vector gate = times(blk + "ffn_gate.weight", h);
      const Vector up = times(blk + "ffn_up.weight", h);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      add(value, times(blk + "ffn_down.weight", gate));
    }
  }

  Vector attend(const Vector& q, const std::vector<Vector>& keys,
                const std::vector<Vector>& values) const {
    const std::size_t dim = at(spec_.head_dim);
    const std::size_t group = at(spec_.heads / spec_.kv_heads);
    Vector result(q.size(), 0);
    for (std::size_t head = 0; head < at(spec_.heads); ++head) {
      const std::size_t kv = head / group * dim;
      Vector scores;
      double mass = 0;
      for (const Vector& key : keys) {
        double score = 0;
        for (std::size_t d = 0; d < dim; ++d) score += q[head * dim + d] * key[kv + d];
        scores.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
        mass += scores.back();
      }
      for (std::size_t i = 0; i < values.size(); ++i) {
        for (std::size_t d = 0; d < dim; ++d) {
          result[head * dim + d] += scores[i] / mass * values[i][kv + d];
        }
      }
    }
    return result;
  }

  static void add(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  const ModelSpec& spec_;
  std::map<std::string, std::vector<float>> weights_;
};

}  // namespace plimsoll
