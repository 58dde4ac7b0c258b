#include "kernels/cuda/launches.h"

#include <string>

#include <gtest/gtest.h>

namespace plimsoll::cuda {
namespace {

LinearArguments call_of(std::int32_t tokens, std::int32_t row_begin, std::int32_t row_end) {
  LinearArguments call{};
  call.tokens = tokens;
  call.row_begin = row_begin;
  call.row_end = row_end;
  return call;
}

TEST(CudaLaunches, TheKernelOfALinearIsThatOfItsTypeAndNumberOfTokens) {
  const auto name = [](WeightFormat format, std::int32_t tokens) {
    return std::string(kernel_name(choose_linear(format, call_of(tokens, 0, 64)).kernel));
  };
  EXPECT_EQ(name(WeightFormat::q4_0, 1), "linear_one_q4_0");
  EXPECT_EQ(name(WeightFormat::q5_1, 16), "linear_few_q5_1");
  EXPECT_EQ(name(WeightFormat::q6_k, 17), "linear_many_q6_k");
  EXPECT_EQ(name(WeightFormat::q8_0, 2), "linear_few_q8_0");
  EXPECT_EQ(name(WeightFormat::bf16, 1), "linear_bf16_one");
  EXPECT_EQ(name(WeightFormat::f32, 1), "linear_f32_one");
  EXPECT_EQ(name(WeightFormat::bf16, 2), "linear_bf16");
  EXPECT_EQ(name(WeightFormat::f16, 40), "linear_f16");
}

TEST(CudaLaunches, GridsCoverEveryRowAndToken) {
  const ChosenKernel one = choose_linear(WeightFormat::q4_0, call_of(1, 16, 53));
  EXPECT_EQ(one.shape.grid.x, 3U);
  const ChosenKernel few = choose_linear(WeightFormat::q4_0, call_of(9, 0, 33));
  EXPECT_EQ(few.shape.grid.x, 3U);
  EXPECT_EQ(few.shape.grid.y, 2U);
  const ChosenKernel many = choose_linear(WeightFormat::q4_0, call_of(65, 0, 129));
  EXPECT_EQ(many.shape.grid.x, 2U);
  EXPECT_EQ(many.shape.grid.y, 3U);
  const ChosenKernel floats = choose_linear(WeightFormat::f32, call_of(5, 3, 20));
  EXPECT_EQ(floats.shape.grid.x, 3U);
  EXPECT_EQ(floats.shape.grid.y, 2U);
}

TEST(CudaLaunches, AttentionFitsTheSharedMemoryOfEveryGpu) {
  for (const std::int64_t dim : {8, 64, 72, 128, 256}) {
    const ChosenKernel chosen =
        choose_attention({.tiles = 3, .heads = 40, .kv_heads = 2, .head_dim = dim, .splits = 5});
    EXPECT_LE(chosen.shape.shared_bytes, kSharedBytesMax);
    EXPECT_EQ(chosen.shape.grid.y, 6U);  // 20 heads are three tiles of eight
    EXPECT_EQ(chosen.shape.grid.z, 5U);
  }
  EXPECT_EQ(choose_attention({.heads = 1, .kv_heads = 1, .head_dim = 72}).kernel,
            Kernel::attention_128);
}

TEST(CudaLaunches, SplitsBecomeBlocksWhereTheirResultsHaveRoom) {
  EXPECT_FALSE(splits_attention(1, 1));
  EXPECT_TRUE(splits_attention(1, 512));
  EXPECT_TRUE(splits_attention(2, 512));
  EXPECT_FALSE(splits_attention(3, 512));
}

}  // namespace
}  // namespace plimsoll::cuda
