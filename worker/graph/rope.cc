#include "worker/graph/rope.h"

#include <cmath>
#include <vector>

#include "shared/base/check.h"

namespace plimsoll {

Bytes rope_table_bytes(const ModelSpec& spec, Tokens positions) {
  return positions * (spec.rope_dim / 2) * 2 * static_cast<Bytes>(sizeof(float));
}

RopeTable make_rope_table(const ModelSpec& spec, Tokens positions, const float* freqs,
                          std::span<std::byte> memory) {
  CHECK(std::ssize(memory) >= rope_table_bytes(spec, positions));
  const auto half = static_cast<std::size_t>(spec.rope_dim / 2);
  std::vector<double> turns(half);  // radians a position
  for (std::size_t j = 0; j < half; ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / static_cast<double>(spec.rope_dim);
    turns[j] = std::pow(spec.rope_base, exponent) / spec.rope_scale;
    if (freqs != nullptr) turns[j] /= static_cast<double>(freqs[j]);
  }
  auto* cos = reinterpret_cast<float*>(memory.data());
  float* sin = cos + static_cast<std::size_t>(positions) * half;
  for (std::size_t position = 0; position < static_cast<std::size_t>(positions); ++position) {
    for (std::size_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(position) * turns[j];
      cos[position * half + j] = static_cast<float>(std::cos(angle));
      sin[position * half + j] = static_cast<float>(std::sin(angle));
    }
  }
  return {.cos = cos,
          .sin = sin,
          .positions = positions,
          .half_dim = spec.rope_dim / 2,
          .interleaved = spec.rope_pairing == RopePairing::interleaved};
}

}  // namespace plimsoll
