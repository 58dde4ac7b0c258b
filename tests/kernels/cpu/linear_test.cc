#include "kernels/cpu/linear.h"

#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/packed_layout.h"
#include "tests/kernels/cpu/rounded_rows.h"
#include "tests/kernels/linear_backends.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll {
namespace {

constexpr double kTolerance = 1e-5;  // of the sum of |w x| of a row

// A value in every third row that is far larger than the others of the row.
void add_outliers(std::vector<float>& in, std::int64_t cols) {
  const auto tokens = static_cast<std::int64_t>(in.size()) / cols;
  for (std::int64_t t = 0; t < tokens; t += 3) {
    in[static_cast<std::size_t>(t * cols + t * 37 % cols)] = 200;
  }
}

class LinearOf : public testing::TestWithParam<LinearCase> {
 protected:
  CpuPath path() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }

  // Compares out = in · Wᵀ with a double loop over what the kernel multiplies.
  void expect_product(Activations activations, std::int64_t tokens, std::int64_t rows,
                      std::int64_t cols) {
    const auto seed = static_cast<std::uint32_t>(tokens * 1000 + rows * 10 + cols);
    SCOPED_TRACE("tokens " + std::to_string(tokens) + ", rows " + std::to_string(rows) + ", cols " +
                 std::to_string(cols) + ", seed " + std::to_string(seed));
    TestBackend test = backend_of(path(), activations);
    const StoredMatrix stored = random_matrix(dtype(), rows, cols, seed);
    const PackedWeights weights(*test.backend, {&stored});
    std::vector<float> in = random_floats(tokens * cols, seed + 1);
    add_outliers(in, cols);
    std::vector<float> out(static_cast<std::size_t>(tokens * rows), -1.0F);
    test.backend->linear({.in = f32_view(in.data(), tokens, cols),
                          .norm = {},
                          .weight = &weights.matrix,
                          .out = f32_view(out.data(), tokens, rows)});
    const std::vector<double> seen = as_seen(in, cols, dtype(), path(), activations);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0, magnitude = 0;
        for (std::int64_t c = 0; c < cols; ++c) {
          const double product = stored.at(r, c) * seen[static_cast<std::size_t>(t * cols + c)];
          sum += product;
          magnitude += std::fabs(product);
        }
        ASSERT_NEAR(out[static_cast<std::size_t>(t * rows + r)], sum, kTolerance * magnitude)
            << "token " << t << ", row " << r;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, LinearOf,
                         testing::Combine(testing::ValuesIn(paths_that_run_here()),
                                          testing::ValuesIn(kAllDTypes)),
                         linear_case_name);

TEST_P(LinearOf, EqualsADoubleLoopOverTheQuantisedInputs) {
  const std::int64_t unit = std::max<std::int64_t>(dtype_info(dtype()).block_length, 32);
  for (const std::int64_t tokens : {1, 2, 3, 5, 8, 17, 33}) {
    expect_product(Activations::int8, tokens, 40, unit);
    expect_product(Activations::int8, tokens, 5, 3 * unit);
    expect_product(Activations::int8, tokens, 16, 512);
  }
}

TEST_P(LinearOf, EqualsADoubleLoopWithFloatActivations) {
  for (const std::int64_t tokens : {1, 2, 4, 7, 17}) {
    expect_product(Activations::f32, tokens, 24, 512);
  }
}

TEST_P(LinearOf, EqualsADoubleLoopWhenTheTokensTakeSeveralChunks) {
  expect_product(Activations::int8, 160, 16, 1536);
  expect_product(Activations::f32, 65, 16, 1536);
}

TEST_P(LinearOf, GivesTheSameBitsForAnyTokensThreadsAndRows) {
  constexpr std::int64_t kTokens = 19, kRows = 70, kCols = 512;
  for (const Activations activations : {Activations::int8, Activations::f32}) {
    const StoredMatrix stored = random_matrix(dtype(), kRows, kCols, 7);
    std::vector<float> in = random_floats(kTokens * kCols, 8);
    add_outliers(in, kCols);
    std::vector<float> gain = random_floats(kCols, 9);
    std::vector<float> all(kTokens * kRows);
    const auto run = [&](TestBackend& test, std::int64_t first, std::int64_t tokens,
                         std::int64_t row_begin, std::int64_t row_end) {
      const PackedWeights weights(*test.backend, {&stored});
      std::vector<float> out(static_cast<std::size_t>(tokens * (row_end - row_begin)));
      test.backend->linear({.in = f32_view(in.data() + first * kCols, tokens, kCols),
                            .norm = {.weight = gain.data(), .eps = 1e-5F},
                            .weight = &weights.matrix,
                            .row_begin = row_begin,
                            .row_end = row_end,
                            .out = f32_view(out.data(), tokens, row_end - row_begin)});
      return out;
    };
    TestBackend one = backend_of(path(), activations, 1);
    const std::vector<float> whole = run(one, 0, kTokens, 0, kRows);
    for (const int threads : {1, 2, 3}) {
      TestBackend test = backend_of(path(), activations, threads);
      EXPECT_EQ(run(test, 0, kTokens, 0, kRows), whole) << threads << " threads";
      for (const std::int64_t tokens : {1, 2, 3, 4, 6, 7, 8, 9, 12, 13}) {
        const std::vector<float> some = run(test, 5, tokens, 0, kRows);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), whole.begin() + 5 * kRows))
            << tokens << " tokens, " << threads << " threads";
      }
      for (const auto& [begin, end] : {std::pair{16, 48}, std::pair{3, 70}, std::pair{33, 34}}) {
        const std::vector<float> some = run(test, 0, kTokens, begin, end);
        for (std::int64_t t = 0; t < kTokens; ++t) {
          EXPECT_TRUE(std::equal(some.begin() + t * (end - begin),
                                 some.begin() + (t + 1) * (end - begin),
                                 whole.begin() + t * kRows + begin))
              << "rows " << begin << " to " << end << ", token " << t;
        }
      }
    }
  }
}

// One large value would take the precision of the 31 others of its block.
TEST_P(LinearOf, AnOutlierCostsItsNeighboursNoPrecision) {
  if (!is_quantised(dtype())) return;
  constexpr std::int64_t kRows = 16, kCols = 512;
  TestBackend test = backend_of(path(), Activations::int8);
  const StoredMatrix stored = random_matrix(dtype(), kRows, kCols, 3);
  const PackedWeights weights(*test.backend, {&stored});
  std::vector<float> in = random_floats(kCols, 4);
  std::fill_n(in.begin() + 64, kCols - 64, 0.0F);  // only two blocks count
  in[40] = 200;
  std::vector<float> out(kRows);
  test.backend->linear({.in = f32_view(in.data(), 1, kCols),
                        .norm = {},
                        .weight = &weights.matrix,
                        .out = f32_view(out.data(), 1, kRows)});
  for (std::int64_t r = 0; r < kRows; ++r) {
    double sum = 0, squares = 0;
    for (std::int64_t c = 0; c < kCols; ++c) {
      sum += stored.at(r, c) * static_cast<double>(in[static_cast<std::size_t>(c)]);
      squares += stored.at(r, c) * stored.at(r, c) / static_cast<double>(kCols);
    }
    // A step of the block's int8 is 1.57; of 32 columns it would leave a third of sqrt(32) of that.
    EXPECT_NEAR(out[static_cast<std::size_t>(r)], sum, 0.3 * std::sqrt(squares)) << "row " << r;
  }
}

class LinearOn : public testing::TestWithParam<CpuPath> {};

INSTANTIATE_TEST_SUITE_P(Paths, LinearOn, testing::ValuesIn(paths_that_run_here()),
                         [](const auto& path) {
                           std::string name = cpu_path_name(path.param);
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(LinearOn, AddsToWhatIsThere) {
  TestBackend test = backend_of(GetParam(), Activations::int8, 2);
  const StoredMatrix stored = random_matrix(DType::q4_1, 37, 64, 1);
  const PackedWeights weights(*test.backend, {&stored});
  for (const std::int64_t tokens : {1, 5}) {
    std::vector<float> in = random_floats(tokens * 64, 2);
    const std::vector<float> before = random_floats(tokens * 37, 3);
    std::vector<float> product(before.size()), sum = before;
    LinearCall call{.in = f32_view(in.data(), tokens, 64),
                    .norm = {},
                    .weight = &weights.matrix,
                    .out = f32_view(product.data(), tokens, 37)};
    test.backend->linear(call);
    call.epilogue = Epilogue::add;
    call.out = f32_view(sum.data(), tokens, 37);
    test.backend->linear(call);
    for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], before[i] + product[i]);
  }
}

TEST_P(LinearOn, MultipliesTheSiluOfGateWithUp) {
  TestBackend test = backend_of(GetParam(), Activations::int8, 2);
  const StoredMatrix gate = random_matrix(DType::q8_0, 41, 96, 1);
  const StoredMatrix up = random_matrix(DType::q4_0, 41, 96, 2);
  const PackedWeights weights(*test.backend, {&gate, &up});
  for (const std::int64_t tokens : {1, 2, 11}) {
    std::vector<float> in = random_floats(tokens * 96, 3);
    std::vector<float> parts(static_cast<std::size_t>(tokens * 82));
    std::vector<float> out(static_cast<std::size_t>(tokens * 41));
    LinearCall call{.in = f32_view(in.data(), tokens, 96),
                    .norm = {},
                    .weight = &weights.matrix,
                    .out = f32_view(parts.data(), tokens, 82)};
    test.backend->linear(call);
    call.epilogue = Epilogue::silu_mul;
    call.out = f32_view(out.data(), tokens, 41);
    test.backend->linear(call);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t r = 0; r < 41; ++r) {
        const double g = parts[static_cast<std::size_t>(t * 82 + r)];
        const double u = parts[static_cast<std::size_t>(t * 82 + 41 + r)];
        const double expected = g / (1 + std::exp(-g)) * u;
        EXPECT_NEAR(out[static_cast<std::size_t>(t * 41 + r)], expected,
                    1e-6 * std::fabs(expected) + 1e-30);
      }
    }
  }
}

TEST_P(LinearOn, SiluIsFiniteAtBothEnds) {
  const LinearKernel& kernel = linear_kernel(GetParam());
  float gate[kTileRows] = {-1e30F, -200, -100, -88, -50, -1,  -0.0F, 0,
                           1e-20F, 1,    10,   88,  100, 1e3, 1e30F, 3};
  float up[kTileRows], out[kTileRows];
  std::fill_n(up, kTileRows, 1.0F);
  kernel.finish(Epilogue::silu_mul, gate, up, {.tokens = 1, .out = out, .stride = kTileRows});
  for (int i = 0; i < kTileRows; ++i) {
    const double g = gate[i], expected = g < -700 ? 0 : g / (1 + std::exp(-g));
    EXPECT_NEAR(out[i], expected, 1e-6 * std::fabs(expected) + 1e-6) << gate[i];
  }
}

TEST_P(LinearOn, StacksPartsOfDifferentTypes) {
  TestBackend test = backend_of(GetParam(), Activations::int8, 2);
  const StoredMatrix q = random_matrix(DType::q4_k, 40, 256, 1);
  const StoredMatrix k = random_matrix(DType::f16, 19, 256, 2);
  const StoredMatrix v = random_matrix(DType::q6_k, 16, 256, 3);
  const PackedWeights stacked(*test.backend, {&q, &k, &v});
  for (const std::int64_t tokens : {1, 3, 9}) {
    std::vector<float> in = random_floats(tokens * 256, 4);
    std::vector<float> together(static_cast<std::size_t>(tokens * 75));
    LinearCall call{.in = f32_view(in.data(), tokens, 256),
                    .norm = {},
                    .weight = &stacked.matrix,
                    .out = f32_view(together.data(), tokens, 75)};
    test.backend->linear(call);
    std::int64_t first = 0;
    for (const StoredMatrix* stored : {&q, &k, &v}) {
      const PackedWeights alone(*test.backend, {stored});
      std::vector<float> out(static_cast<std::size_t>(tokens * stored->rows));
      call.weight = &alone.matrix;
      call.out = f32_view(out.data(), tokens, stored->rows);
      test.backend->linear(call);
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t r = 0; r < stored->rows; ++r) {
          ASSERT_EQ(together[static_cast<std::size_t>(t * 75 + first + r)],
                    out[static_cast<std::size_t>(t * stored->rows + r)]);
        }
      }
      first += stored->rows;
    }
  }
}

// What the kernels multiply after the norm, as doubles; `rms` is the kernel's own, tested below.
std::vector<double> normed_as_seen(const std::vector<float>& in, const std::vector<float>& gain,
                                   const LinearKernel& kernel, bool is_shared) {
  const auto cols = static_cast<std::int64_t>(gain.size());
  std::vector<float> normed(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float* row = in.data() + i / gain.size() * gain.size();
    normed[i] = in[i] * kernel.rms_of(row, cols, 1e-5F) * gain[i % gain.size()];
  }
  return as_rounded(normed, gain.size(), is_shared);
}

double gelu(double z) {
  return z / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
}

TEST_P(LinearOn, GeluKeepsItsShapeFarOut) {
  const LinearKernel& kernel = linear_kernel(GetParam());
  float gate[kTileRows] = {-1e30F, -200, -20, -9, -5, -1,  -0.0F, 0,
                           1e-20F, 1,    3,   9,  20, 1e3, 1e30F, 0.5F};
  float up[kTileRows], out[kTileRows];
  std::fill_n(up, kTileRows, 1.0F);
  kernel.finish(Epilogue::gelu_mul, gate, up, {.tokens = 1, .out = out, .stride = kTileRows});
  for (int i = 0; i < kTileRows; ++i) {
    const double expected = gelu(gate[i]);
    EXPECT_NEAR(out[i], expected, 1e-6 * std::fabs(expected) + 1e-6) << gate[i];
  }
}

TEST_P(LinearOn, EveryEpilogueAfterANormEqualsADoubleLoop) {
  constexpr std::int64_t kRows = 41, kCols = 512;
  TestBackend test = backend_of(GetParam(), Activations::int8, 2);
  const StoredMatrix first = random_matrix(DType::q4_1, kRows, kCols, 1);
  const StoredMatrix second = random_matrix(DType::q6_k, kRows, kCols, 2);
  const PackedWeights weights(*test.backend, {&first, &second});
  const std::vector<float> gain = random_floats(kCols, 3);
  for (const std::int64_t tokens : {1, 2, 3, 5, 8, 17, 33}) {
    std::vector<float> in = random_floats(tokens * kCols, 4);
    const LinearKernel& kernel = linear_kernel(GetParam());
    const std::vector<double> seen[] = {normed_as_seen(in, gain, kernel, false),
                                        normed_as_seen(in, gain, kernel, true)};
    const auto product = [&](std::int64_t t, std::int64_t r, bool is_shared = false) {
      const StoredMatrix& matrix = r < kRows ? first : second;
      double sum = 0;
      for (std::int64_t c = 0; c < kCols; ++c) {
        sum += matrix.at(r % kRows, c) * seen[is_shared][static_cast<std::size_t>(t * kCols + c)];
      }
      return sum;
    };
    for (const Epilogue epilogue :
         {Epilogue::store, Epilogue::add, Epilogue::silu_mul, Epilogue::gelu_mul}) {
      const std::int64_t rows = is_gated(epilogue) ? kRows : 2 * kRows;
      const std::vector<float> before = random_floats(tokens * rows, 5);
      std::vector<float> out = before;
      test.backend->linear({.in = f32_view(in.data(), tokens, kCols),
                            .norm = {.weight = gain.data(), .eps = 1e-5F},
                            .weight = &weights.matrix,
                            .epilogue = epilogue,
                            .out = f32_view(out.data(), tokens, rows)});
      for (std::int64_t i = 0; i < tokens * rows; ++i) {
        const std::int64_t t = i / rows, r = i % rows;
        double expected = product(t, r, epilogue == Epilogue::add);
        if (epilogue == Epilogue::add) expected += before[static_cast<std::size_t>(i)];
        if (epilogue == Epilogue::silu_mul) {
          expected = expected / (1 + std::exp(-expected)) * product(t, r + kRows);
        } else if (epilogue == Epilogue::gelu_mul) {
          expected = gelu(expected) * product(t, r + kRows);
        }
        ASSERT_NEAR(out[static_cast<std::size_t>(i)], expected, 2e-4 + 2e-5 * std::fabs(expected))
            << tokens << " tokens, epilogue " << static_cast<int>(epilogue) << ", element " << i;
      }
    }
  }
}

TEST_P(LinearOn, ATokenThatIsNotFiniteShowsInItsOwnRowAlone) {
  for (const DType dtype :
       {DType::q4_0, DType::q4_1, DType::q8_0, DType::q6_k, DType::f16, DType::bf16}) {
    TestBackend test = backend_of(GetParam(), Activations::int8);
    const StoredMatrix stored = random_matrix(dtype, 16, 256, 1);
    const PackedWeights weights(*test.backend, {&stored});
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      std::vector<float> in = random_floats(3 * 256, 2);
      in[256 + 77] = bad;
      std::vector<float> out(3 * 16);
      test.backend->linear({.in = f32_view(in.data(), 3, 256),
                            .norm = {},
                            .weight = &weights.matrix,
                            .out = f32_view(out.data(), 3, 16)});
      for (std::size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(std::isfinite(out[i]), i / 16 != 1) << dtype_info(dtype).name << ", " << bad;
      }
    }
  }
}

TEST_P(LinearOn, NormsBeforeItMultiplies) {
  constexpr std::int64_t kCols = 576;
  const LinearKernel& kernel = linear_kernel(GetParam());
  TestBackend test = backend_of(GetParam(), Activations::int8);
  const StoredMatrix stored = random_matrix(DType::q4_1, 32, kCols, 1);
  const PackedWeights weights(*test.backend, {&stored});
  std::vector<float> in = random_floats(kCols, 2);
  const std::vector<float> gain = random_floats(kCols, 3);
  const float rms = kernel.rms_of(in.data(), kCols, 1e-5F);
  double squares = 0;
  for (const float x : in) squares += static_cast<double>(x) * x;
  EXPECT_NEAR(rms, 1 / std::sqrt(squares / kCols + 1e-5), 1e-6);

  std::vector<float> normed(kCols), out(32), expected(32);
  for (std::size_t c = 0; c < kCols; ++c) normed[c] = in[c] * rms * gain[c];
  LinearCall call{.in = f32_view(in.data(), 1, kCols),
                  .norm = {.weight = gain.data(), .eps = 1e-5F},
                  .weight = &weights.matrix,
                  .out = f32_view(out.data(), 1, 32)};
  test.backend->linear(call);
  call.in = f32_view(normed.data(), 1, kCols);
  call.norm = {};
  call.out = f32_view(expected.data(), 1, 32);
  test.backend->linear(call);
  EXPECT_EQ(out, expected);
}

TEST_P(LinearOn, TakesFloatWeightsOfAnyColumnCount) {
  TestBackend test = backend_of(GetParam(), Activations::int8);
  for (const std::int64_t cols : {1, 7, 45}) {
    const StoredMatrix stored = random_matrix(DType::f32, 18, cols, 1);
    const PackedWeights weights(*test.backend, {&stored});
    std::vector<float> in = random_floats(3 * cols, 2);
    std::vector<float> out(3 * 18);
    test.backend->linear({.in = f32_view(in.data(), 3, cols),
                          .norm = {},
                          .weight = &weights.matrix,
                          .out = f32_view(out.data(), 3, 18)});
    for (std::int64_t i = 0; i < 3 * 18; ++i) {
      double sum = 0;
      for (std::int64_t c = 0; c < cols; ++c) {
        sum += stored.at(i % 18, c) * in[static_cast<std::size_t>(i / 18 * cols + c)];
      }
      EXPECT_NEAR(out[static_cast<std::size_t>(i)], sum, 1e-5);
    }
  }
}

TEST_P(LinearOn, ZeroRowsOfActivationsGiveZero) {
  TestBackend test = backend_of(GetParam(), Activations::int8);
  const StoredMatrix stored = random_matrix(DType::q4_1, 16, 64, 1);
  const PackedWeights weights(*test.backend, {&stored});
  std::vector<float> in(64, 0.0F), out(16, 5.0F);
  test.backend->linear({.in = f32_view(in.data(), 1, 64),
                        .norm = {},
                        .weight = &weights.matrix,
                        .out = f32_view(out.data(), 1, 16)});
  EXPECT_EQ(out, std::vector<float>(16, 0.0F));
}

TEST_P(LinearOn, AddsNormedRowsWhateverElseIsInTheCall) {
  constexpr std::int64_t kCols = 200;
  const std::vector<float> gain = random_floats(kCols, 1);
  for (const int threads : {1, 3}) {
    TestBackend test = backend_of(GetParam(), Activations::int8, threads);
    for (const std::int64_t tokens : {1, 2, 7}) {
      const std::vector<float> in = random_floats(7 * kCols, 2);
      std::vector<float> sums = in;
      const std::vector<float> before = random_floats(7 * kCols, 3);
      std::vector<float> out = before;
      test.backend->add_normed(f32_view(sums.data(), tokens, kCols), {gain.data(), 1e-5F},
                               f32_view(out.data(), tokens, kCols));
      for (std::int64_t i = 0; i < 7 * kCols; ++i) {
        const auto at = static_cast<std::size_t>(i);
        ASSERT_EQ(sums[at], i < tokens * kCols ? 0 : in[at]);
      }
      for (std::int64_t i = 0; i < 7 * kCols; ++i) {
        const std::int64_t row = i / kCols * kCols;
        double squares = 0;
        for (std::int64_t c = 0; c < kCols; ++c) {
          const double x = in[static_cast<std::size_t>(row + c)];
          squares += x * x;
        }
        const auto at = static_cast<std::size_t>(i);
        const double normed =
            in[at] / std::sqrt(squares / kCols + 1e-5) * gain[static_cast<std::size_t>(i % kCols)];
        const double expected = before[at] + (i < tokens * kCols ? normed : 0);
        ASSERT_NEAR(out[at], expected, 1e-5) << tokens << " tokens, element " << i;
      }
    }
  }
}

TEST(Embed, GivesTheRowsOfTheTable) {
  TestBackend test = backend_of(CpuPath::scalar, Activations::int8);
  for (const DType dtype : kAllDTypes) {
    const StoredMatrix stored = random_matrix(dtype, 50, 512, 11);
    const PackedWeights table(*test.backend, {&stored});
    const std::vector<std::int32_t> ids = {49, 0, 17, 17, 32};
    std::vector<float> out(ids.size() * 512);
    test.backend->embed(table.matrix, ids, 3.0F,
                        f32_view(out.data(), static_cast<std::int64_t>(ids.size()), 512));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double expected = 3 * stored.at(ids[i / 512], static_cast<std::int64_t>(i % 512));
      ASSERT_NEAR(out[i], expected, 1e-6 + 1e-7 * std::fabs(expected)) << dtype_info(dtype).name;
    }
  }
}

}  // namespace
}  // namespace plimsoll
