#include "worker/sample/softmax.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "shared/base/check.h"

namespace plimsoll {
namespace {

constexpr std::size_t kLanes = 4;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = std::int32_t __attribute__((vector_size(kLanes * sizeof(float))));

Floats load(const float* from) {
  Floats value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// exp(x) for x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, and n added to the
// exponent's bits.
Floats exp_of(Floats x) {
  constexpr float kLeast = -86;       // e^-86 is still a normal number
  constexpr float kMagic = 12582912;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLog2E = 1.44269504088896F;
  constexpr float kLn2High = 0.693359375F;  // few bits, so that n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  const Ints is_zero = x < kLeast;
  x = is_zero ? Floats{} : x;
  const Floats shifted = x * kLog2E + kMagic;
  const Floats n = shifted - kMagic;
  const Floats r = (x - n * kLn2High) - n * kLn2Low;
  Floats p = 1.0F / 720 + Floats{};
  for (const float factor : {1.0F / 120, 1.0F / 24, 1.0F / 6, 1.0F / 2, 1.0F, 1.0F}) {
    p = p * r + factor;
  }
  const Ints exponent = std::bit_cast<Ints>(shifted) - std::bit_cast<std::int32_t>(kMagic);
  const Ints bits = std::bit_cast<Ints>(p) + exponent * (1 << 23);
  return is_zero ? Floats{} : std::bit_cast<Floats>(bits);
}

}  // namespace

std::optional<float> largest_logit(std::span<const float> logits) {
  constexpr float kMost = std::numeric_limits<float>::max();
  Floats most = -std::numeric_limits<float>::infinity() + Floats{};
  Ints is_sound = Ints{} == 0;
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    const Floats value = load(&logits[i]);
    is_sound &= value <= kMost;  // false for NaN, too
    most = value > most ? value : most;
  }
  float largest = -std::numeric_limits<float>::infinity();
  bool all_sound = true;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    largest = std::max(largest, most[lane]);
    all_sound &= is_sound[lane] != 0;
  }
  for (; i < logits.size(); ++i) {
    all_sound &= logits[i] <= kMost;
    largest = std::max(largest, logits[i]);
  }
  if (!all_sound || largest == -std::numeric_limits<float>::infinity()) return std::nullopt;
  return largest;
}

double softmax_weights(std::span<const float> logits, float max, float scale,
                       std::span<float> weights) {
  CHECK(weights.size() == logits.size());
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    const Floats weight = exp_of((load(&logits[i]) - max) * scale);
    std::memcpy(&weights[i], &weight, sizeof weight);
  }
  for (; i < logits.size(); ++i) weights[i] = softmax_weight(logits[i], max, scale);
  return mass_of(weights);
}

float softmax_weight(float logit, float max, float scale) {
  return exp_of((logit - max) * scale + Floats{})[0];
}

double mass_of_chunk(std::span<const float> weights) {
  constexpr std::size_t kSums = 32;
  std::array<double, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= weights.size(); i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(weights[i + k]);
  }
  for (std::size_t k = 0; i + k < weights.size(); ++k)
    sums[k] += static_cast<double>(weights[i + k]);
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

double mass_of(std::span<const float> weights) {
  double mass = 0;
  for (std::size_t begin = 0; begin < weights.size(); begin += kMassChunk) {
    mass += mass_of_chunk(weights.subspan(begin, std::min(kMassChunk, weights.size() - begin)));
  }
  return mass;
}

}  // namespace plimsoll
