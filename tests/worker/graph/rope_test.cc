#include "worker/graph/rope.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

ModelSpec spec_of(double base, double scale) {
  ModelSpec spec;
  spec.rope_dim = 8;
  spec.rope_base = base;
  spec.rope_scale = scale;
  spec.rope_pairing = RopePairing::half_split;
  return spec;
}

TEST(Rope, AnglesFollowTheFormula) {
  const ModelSpec spec = spec_of(100'000, 2);
  const std::vector<float> freqs = {1, 2, 4, 8};
  std::vector<std::byte> memory(static_cast<std::size_t>(rope_table_bytes(spec, 100)));
  const RopeTables tables = make_rope_tables(spec, 100, freqs.data(), memory);
  EXPECT_EQ(tables.window.cos, tables.full.cos);
  const RopeTable& table = tables.full;
  EXPECT_EQ(table.positions, 100);
  EXPECT_EQ(table.half_dim, 4);
  EXPECT_FALSE(table.interleaved);
  for (std::size_t position : {0U, 1U, 57U, 99U}) {
    for (std::size_t j = 0; j < 4; ++j) {
      const double angle = static_cast<double>(position) / 2 *
                           std::pow(100'000, -2.0 * static_cast<double>(j) / 8) / freqs[j];
      EXPECT_NEAR(table.cos[position * 4 + j], std::cos(angle), 1e-6);
      EXPECT_NEAR(table.sin[position * 4 + j], std::sin(angle), 1e-6);
    }
  }
}

TEST(Rope, LayersWithAWindowMayHaveABaseOfTheirOwnThatIsNotScaled) {
  ModelSpec spec = spec_of(1'000'000, 8);
  spec.window_rope_base = 10'000;
  std::vector<std::byte> memory(static_cast<std::size_t>(rope_table_bytes(spec, 50)));
  EXPECT_EQ(memory.size(), 2U * 50 * 8 * 4);
  const RopeTables tables = make_rope_tables(spec, 50, nullptr, memory);
  for (std::size_t j = 0; j < 4; ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / 8;
    EXPECT_NEAR(tables.full.sin[49 * 4 + j], std::sin(49 * std::pow(1e6, exponent) / 8), 1e-6);
    EXPECT_NEAR(tables.window.sin[49 * 4 + j], std::sin(49 * std::pow(1e4, exponent)), 1e-6);
  }
}

TEST(Rope, PairingIsTheModels) {
  ModelSpec spec = spec_of(10'000, 1);
  spec.rope_pairing = RopePairing::interleaved;
  std::vector<std::byte> memory(static_cast<std::size_t>(rope_table_bytes(spec, 1)));
  EXPECT_TRUE(make_rope_tables(spec, 1, nullptr, memory).full.interleaved);
}

}  // namespace
}  // namespace plimsoll
