#include "kernels/dequantise.h"

#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "shared/model/gguf.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

// What tools/make_dequantise_goldens writes.
struct Golden {
  std::string blocks;
  std::vector<float> values;
};

Golden read_golden(std::string_view type) {
  const std::string file = read_test_file(golden_path("dequantise/" + std::string(type) + ".bin"));
  std::uint32_t sizes[2] = {};
  if (file.size() >= sizeof sizes) std::memcpy(sizes, file.data(), sizeof sizes);
  const auto [elements, block_bytes] = sizes;
  if (file.size() != sizeof sizes + block_bytes + elements * sizeof(float)) {
    ADD_FAILURE() << "odd golden file of " << type;
    return {};
  }
  Golden golden{file.substr(sizeof sizes, block_bytes), std::vector<float>(elements)};
  std::memcpy(golden.values.data(), file.data() + sizeof sizes + block_bytes,
              elements * sizeof(float));
  return golden;
}

class DequantiseGolden : public testing::TestWithParam<DType> {};

TEST_P(DequantiseGolden, EqualsAnIndependentDequantiserBitForBit) {
  const DTypeInfo& info = dtype_info(GetParam());
  const Golden golden = read_golden(info.name);
  ASSERT_EQ(golden.values.size(), 768U);
  ASSERT_EQ(static_cast<std::int64_t>(golden.blocks.size()), stored_bytes(info.dtype, 768));
  // One byte further than a block's start, since blocks in files are not aligned either.
  std::vector<std::byte> shifted(golden.blocks.size() + 1);
  std::memcpy(shifted.data() + 1, golden.blocks.data(), golden.blocks.size());
  std::vector<float> values(768);
  dequantise(info.dtype, shifted.data() + 1, 768, values.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], golden.values[i]) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DequantiseGolden,
                         testing::Values(DType::f16, DType::bf16, DType::q4_0, DType::q4_1,
                                         DType::q5_0, DType::q5_1, DType::q8_0, DType::q4_k,
                                         DType::q5_k, DType::q6_k),
                         [](const auto& type) { return std::string(dtype_info(type.param).name); });

TEST(Dequantise, F32IsCopied) {
  const float stored[3] = {1.0F, -0.0F, 3e38F};
  float values[3];
  dequantise(DType::f32, reinterpret_cast<const std::byte*>(stored), 3, values);
  EXPECT_EQ(std::memcmp(stored, values, sizeof values), 0);
}

struct Sums {
  const char* name;
  float first[4];
  double sum;
  double squares;
};

// Whole tensors of the default model, summed in double.
TEST(Dequantise, WholeTensorsOfTheDefaultModelHaveTheGoldenSums) {
  SKIP_WITHOUT(default_model_path());
  const auto file = GgufFile::open(default_model_path());
  ASSERT_TRUE(file) << file.error().message;
  const Sums goldens[] = {
      {"token_embd.weight",
       {-0.1065445F, 0.03297806F, 0.0481987F, -0.02283096F},
       -15353.044494,
       520415.715448},
      {"blk.0.attn_q.weight",
       {-0.09631348F, 0.1573486F, -0.09631348F, -0.7304688F},
       59.223221,
       26749.573275},
      {"blk.29.ffn_down.weight",
       {-0.2733154F, 0.1862793F, 0.1862793F, 0.04840088F},
       49.835709,
       29667.074892},
  };
  for (const Sums& golden : goldens) {
    const WeightInfo* weight = file->weights().find(golden.name);
    ASSERT_NE(weight, nullptr) << golden.name;
    const std::int64_t elements = weight->rows() * weight->cols();
    std::vector<float> values(static_cast<std::size_t>(elements));
    dequantise(weight->dtype, file->bytes_of(*weight).data(), elements, values.data());
    double sum = 0;
    double squares = 0;
    // Row by row: one running sum over 28 million values would itself be off by 4e-5.
    for (auto row = values.begin(); row != values.end(); row += weight->cols()) {
      const auto row_end = row + weight->cols();
      sum += std::accumulate(row, row_end, 0.0);
      squares += std::inner_product(row, row_end, row, 0.0, std::plus<>(),
                                    [](double a, double b) { return a * b; });
    }
    EXPECT_NEAR(sum, golden.sum, 1e-6) << golden.name;
    EXPECT_NEAR(squares, golden.squares, 1e-6) << golden.name;
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(values[static_cast<std::size_t>(i)], golden.first[i], 1e-7) << golden.name;
    }
  }
}

}  // namespace
}  // namespace plimsoll
