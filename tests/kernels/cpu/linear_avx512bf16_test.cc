// BF16 weights on every path that runs here: rounded activations where the CPU multiplies bf16
// (linear_avx512bf16.cc), f32 ones elsewhere; and pairs of columns in both. Types alone, threads
// and numbers of tokens are linear_test.cc's.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/linear_kernel.h"
#include "tests/kernels/cpu/rounded_rows.h"
#include "tests/kernels/linear_backends.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll {
namespace {

class LinearBf16 : public testing::TestWithParam<CpuPath> {
 protected:
  std::vector<float> product(Activations activations, const std::vector<const StoredMatrix*>& parts,
                             std::vector<float> in) {
    TestBackend test = backend_of(GetParam(), activations, 2);
    const PackedWeights weights(*test.backend, parts);
    const std::int64_t cols = parts[0]->cols;
    const std::int64_t tokens = std::ssize(in) / cols;
    std::vector<float> out(static_cast<std::size_t>(tokens * weights.matrix.rows));
    test.backend->linear({.in = f32_view(in.data(), tokens, cols),
                          .norm = {},
                          .weight = &weights.matrix,
                          .out = f32_view(out.data(), tokens, weights.matrix.rows)});
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, LinearBf16, testing::ValuesIn(paths_that_run_here()),
                         [](const auto& path) {
                           std::string name = cpu_path_name(path.param);
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(LinearBf16, EqualsADoubleLoopForAnyColumnCount) {
  constexpr std::int64_t kRows = 18;
  for (const Activations activations : {Activations::int8, Activations::f32}) {
    // Less than a pair, a run of sums and a whole number of neither.
    for (const std::int64_t cols : {1, 2, 7, 45, 62, 64, 66, 191}) {
      const StoredMatrix stored = random_matrix(DType::bf16, kRows, cols, 1);
      for (const std::int64_t tokens : {1, 2, 3, 8, 11}) {
        const std::vector<float> in = random_floats(tokens * cols, 2);
        const std::vector<double> seen = as_seen(in, cols, DType::bf16, GetParam(), activations);
        const std::vector<float> out = product(activations, {&stored}, in);
        for (std::int64_t i = 0; i < tokens * kRows; ++i) {
          double sum = 0, magnitude = 0;
          for (std::int64_t c = 0; c < cols; ++c) {
            const double one =
                stored.at(i % kRows, c) * seen[static_cast<std::size_t>(i / kRows * cols + c)];
            sum += one;
            magnitude += std::fabs(one);
          }
          ASSERT_NEAR(out[static_cast<std::size_t>(i)], sum, 1e-6 * magnitude)
              << cols << " columns, " << tokens << " tokens, element " << i;
        }
      }
    }
  }
}

TEST_P(LinearBf16, IsTheSameAloneAndBesidePartsOfOtherTypes) {
  const StoredMatrix bf16 = random_matrix(DType::bf16, 21, 256, 1);
  const StoredMatrix f16 = random_matrix(DType::f16, 19, 256, 2);
  const StoredMatrix q4_k = random_matrix(DType::q4_k, 16, 256, 3);
  for (const std::int64_t tokens : {1, 9}) {
    const std::vector<float> in = random_floats(tokens * 256, 4);
    for (const StoredMatrix* other : {&f16, &q4_k}) {
      const std::vector<float> alone = product(Activations::int8, {&bf16}, in);
      const std::vector<float> other_alone = product(Activations::int8, {other}, in);
      const std::vector<float> stacked = product(Activations::int8, {other, &bf16}, in);
      std::vector<float> expected;
      for (std::int64_t t = 0; t < tokens; ++t) {
        const auto add = [&](const std::vector<float>& rows, std::int64_t count) {
          expected.insert(expected.end(), rows.begin() + t * count, rows.begin() + (t + 1) * count);
        };
        add(other_alone, other->rows);
        add(alone, bf16.rows);
      }
      EXPECT_EQ(stacked, expected) << dtype_info(other->dtype).name << ", " << tokens << " tokens";
    }
  }
}

// The scratch has room for panels of two types.
TEST_P(LinearBf16, IsMultipliedInF32BesideBothOtherTypesOfPanels) {
  const StoredMatrix q4_k = random_matrix(DType::q4_k, 16, 256, 1);
  const StoredMatrix bf16 = random_matrix(DType::bf16, 16, 256, 2);
  const StoredMatrix f16 = random_matrix(DType::f16, 16, 256, 3);
  for (const std::int64_t tokens : {1, 9}) {
    const std::vector<float> in = random_floats(tokens * 256, 4);
    const std::vector<float> stacked = product(Activations::int8, {&q4_k, &bf16, &f16}, in);
    const std::vector<float> q4_k_alone = product(Activations::int8, {&q4_k}, in);
    const std::vector<float> in_f32 = product(Activations::f32, {&bf16, &f16}, in);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t r = 0; r < 48; ++r) {
        const float expected = r < 16 ? q4_k_alone[static_cast<std::size_t>(t * 16 + r)]
                                      : in_f32[static_cast<std::size_t>(t * 32 + r - 16)];
        ASSERT_EQ(stacked[static_cast<std::size_t>(t * 48 + r)], expected)
            << tokens << " tokens, token " << t << ", row " << r;
      }
    }
  }
}

TEST(LinearAvx512Bf16, IsTakenWhereTheCpuMultipliesBf16) {
  if (!cpu_path_runs_here(CpuPath::avx512)) GTEST_SKIP() << "no AVX-512";
  const bool is_rounded = linear_kernel(CpuPath::avx512).round != nullptr;
  EXPECT_EQ(is_rounded, detect_cpu_features().avx512bf16);
  EXPECT_EQ(linear_kernel(CpuPath::avx2).round, nullptr);
  EXPECT_EQ(avx512_linear_kernel().round, nullptr);
}

}  // namespace
}  // namespace plimsoll
