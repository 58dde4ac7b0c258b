#include "tools/tiny_model/quantise.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "kernels/dequantise.h"

namespace plimsoll {
namespace {

struct Precision {
  DType type;
  double error_max;  // root mean square, of normal values of deviation one
};

class Quantise : public testing::TestWithParam<Precision> {};

std::vector<float> round_trip(DType type, std::span<const float> values) {
  const std::vector<std::byte> blocks = quantise(type, values);
  EXPECT_EQ(std::ssize(blocks), stored_bytes(type, std::ssize(values)));
  std::vector<float> out(values.size());
  dequantise(type, blocks.data(), std::ssize(out), out.data());
  return out;
}

double error_of(std::span<const float> values, std::span<const float> stored) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += std::pow(static_cast<double>(values[i]) - static_cast<double>(stored[i]), 2);
  }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST_P(Quantise, LosesNoMoreThanItsBits) {
  constexpr unsigned kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> values(256 * 40);
  for (float& value : values) value = normal(random);
  EXPECT_LE(error_of(values, round_trip(GetParam().type, values)), GetParam().error_max);
  // Values far from zero, on either side of it.
  for (const float offset : {3.0F, -3.0F}) {
    std::vector<float> shifted = values;
    for (float& value : shifted) value += offset;
    EXPECT_LE(error_of(shifted, round_trip(GetParam().type, shifted)), 3 * GetParam().error_max);
  }
}

TEST_P(Quantise, ZerosStayZero) {
  const std::vector<float> zeros(512);
  EXPECT_EQ(round_trip(GetParam().type, zeros), zeros);
}

TEST_P(Quantise, AConstantIsKept) {
  for (const float constant : {2.0F, -2.0F}) {
    const std::vector<float> values(256, constant);
    EXPECT_LE(error_of(values, round_trip(GetParam().type, values)), 0.02) << constant;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, Quantise,
    testing::Values(Precision{DType::f32, 0}, Precision{DType::f16, 3e-4},
                    Precision{DType::bf16, 2.5e-3}, Precision{DType::q4_0, 0.1},
                    Precision{DType::q4_1, 0.09}, Precision{DType::q5_0, 0.05},
                    Precision{DType::q5_1, 0.045}, Precision{DType::q8_0, 6e-3},
                    Precision{DType::q4_k, 0.1}, Precision{DType::q5_k, 0.055},
                    Precision{DType::q6_k, 0.025}),
    [](const auto& test) { return std::string(dtype_info(test.param.type).name); });

}  // namespace
}  // namespace plimsoll
