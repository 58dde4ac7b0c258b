#include "worker/graph/rope.h"

#include <cmath>
#include <vector>

#include "shared/base/check.h"

namespace plimsoll {
namespace {

Bytes table_bytes(const ModelSpec& spec, Tokens positions) {
  return positions * (spec.rope_dim / 2) * 2 * static_cast<Bytes>(sizeof(float));
}

// base^(-2j / dim): radians a position.
std::vector<double> plain_turns(double base, std::int64_t dim) {
  std::vector<double> turns(static_cast<std::size_t>(dim / 2));
  for (std::size_t j = 0; j < turns.size(); ++j) {
    turns[j] = std::pow(base, -2.0 * static_cast<double>(j) / static_cast<double>(dim));
  }
  return turns;
}

RopeTable fill(const ModelSpec& spec, const std::vector<double>& turns, Tokens positions,
               std::byte* memory) {
  const std::size_t half = turns.size();
  auto* cos = reinterpret_cast<float*>(memory);
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

}  // namespace

Bytes rope_table_bytes(const ModelSpec& spec, Tokens positions) {
  return table_bytes(spec, positions) * (spec.window_rope_base > 0 ? 2 : 1);
}

RopeTables make_rope_tables(const ModelSpec& spec, Tokens positions, const float* freqs,
                            std::span<std::byte> memory) {
  CHECK(std::ssize(memory) >= rope_table_bytes(spec, positions));
  std::vector<double> turns = plain_turns(spec.rope_base, spec.rope_dim);
  for (std::size_t j = 0; j < turns.size(); ++j) {
    turns[j] /= spec.rope_scale;
    if (freqs != nullptr) turns[j] /= static_cast<double>(freqs[j]);
  }
  RopeTables tables;
  tables.full = fill(spec, turns, positions, memory.data());
  tables.window = tables.full;
  if (spec.window_rope_base > 0) {
    tables.window = fill(spec, plain_turns(spec.window_rope_base, spec.rope_dim), positions,
                         memory.data() + table_bytes(spec, positions));
  }
  return tables;
}

}  // namespace plimsoll
