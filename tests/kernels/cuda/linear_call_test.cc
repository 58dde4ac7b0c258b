#include "kernels/cuda/linear_call.h"

#include <array>

#include <gtest/gtest.h>

namespace plimsoll::cuda {
namespace {

struct Call {
  Call() {
    weight.parts = {{DType::q4_0, 48, 96, memory.data()}, {DType::q4_0, 48, 96, memory.data() + 8}};
    weight.cols = 96;
    call.in = f32_view(floats.data(), 3, 96);
    call.weight = &weight;
    call.out = f32_view(floats.data() + 1, 3, 200);
    call.sums = sums_view(sums.data(), 3, 300);
    space.quants = reinterpret_cast<std::int8_t*>(memory.data() + 16);
  }
  std::array<std::byte, 32> memory{};
  std::array<float, 256> floats{};
  std::array<double, 256> sums{};
  PackedMatrix weight;
  LinearCall call;
  Workspace space;
};

TEST(LinearCallArguments, APartGoesBehindTheRowsBeforeIt) {
  Call test;
  const LinearArguments stored = linear_arguments(test.call, 1, 48, test.space);
  EXPECT_EQ(stored.weight, reinterpret_cast<const unsigned char*>(test.weight.parts[1].data));
  EXPECT_EQ(stored.quants, test.space.quants);
  EXPECT_EQ(stored.out, test.call.out.f32() + 48);
  EXPECT_EQ(stored.stride, 200);
  EXPECT_EQ(stored.tokens, 3);
  EXPECT_EQ(stored.row_begin, 0);
  EXPECT_EQ(stored.row_end, 48);
  EXPECT_EQ(stored.end, LinearEnd::store);
  test.call.row_begin = 5;
  test.call.row_end = 9;
  const LinearArguments range = linear_arguments(test.call, 0, 0, test.space);
  EXPECT_EQ(range.row_begin, 5);
  EXPECT_EQ(range.row_end, 9);
}

TEST(LinearCallArguments, SumsForOtherRanksAreF64AndHaveTheWeightsSegments) {
  Call test;
  test.call.epilogue = Epilogue::partial;
  test.weight.segment_cols = 32;
  const LinearArguments partial = linear_arguments(test.call, 0, 16, test.space);
  EXPECT_EQ(partial.end, LinearEnd::partial);
  EXPECT_EQ(partial.sums, test.call.sums.data + 16);
  EXPECT_EQ(partial.stride, 300);
  EXPECT_EQ(partial.out, nullptr);
  EXPECT_EQ(partial.segment_cols, 32);
}

TEST(LinearCallArguments, AGateBringsWhatItIsMultipliedWith) {
  for (const auto& [epilogue, end] : {std::pair{Epilogue::silu_mul, LinearEnd::silu_mul},
                                      std::pair{Epilogue::gelu_mul, LinearEnd::gelu_mul}}) {
    Call test;
    test.call.epilogue = epilogue;
    const LinearArguments gated = linear_arguments(test.call, 0, 0, test.space);
    EXPECT_EQ(gated.end, end);
    EXPECT_EQ(gated.up, reinterpret_cast<const unsigned char*>(test.weight.parts[1].data));
  }
}

}  // namespace
}  // namespace plimsoll::cuda
