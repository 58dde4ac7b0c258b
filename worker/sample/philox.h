// Philox: counter-based random numbers (Philox 4x32-10, Salmon et al. 2011): no state, so that a
// draw depends on its key and counter alone: not on the batch, on preemption or on a restart.
#pragma once

#include <array>
#include <cstdint>

namespace plimsoll {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr PhiloxCounter philox_4x32_10(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits: the draw for the token at that position of a sequence.
constexpr double uniform_at(std::uint64_t seed, std::uint64_t position) {
  const PhiloxCounter random = philox_4x32_10(
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), 0, 0},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t bits = (std::uint64_t{random[0]} << 32) | random[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace plimsoll
