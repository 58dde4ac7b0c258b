// Linear on the CUDA backend: kernels/cuda/linear.cu, linear_mma.cu and linear_float.cu.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cuda/cuda_backends.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll {
namespace {

constexpr BackendLimits kLimits{.tokens_max = 40,
                                .cols_max = 1024,
                                .rows_max = 256,
                                .context_max = 64,
                                .heads_max = 2,
                                .head_dim = 16};
constexpr double kTolerance = 1e-5;  // of the sum of |w x| of a row

bool quantises(DType dtype) {
  return dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16;
}

// What kernels see of a row: normed, then rounded to int8 per 32 columns where weights are
// quantised.
std::vector<double> as_seen(const float* in, std::int64_t cols, const float* gain, bool quantised) {
  std::vector<double> seen(in, in + cols);
  if (gain != nullptr) {
    double squares = 0;
    for (const double x : seen) squares += x * x;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
    for (std::size_t c = 0; c < seen.size(); ++c) seen[c] *= factor * static_cast<double>(gain[c]);
  }
  for (std::size_t c = 0; quantised && c < seen.size(); c += 32) {
    double largest = 0;
    for (std::size_t k = c; k < c + 32; ++k) largest = std::max(largest, std::fabs(seen[k]));
    for (std::size_t k = c; k < c + 32; ++k) {
      seen[k] = std::nearbyint(seen[k] / largest * 127) * largest / 127;
    }
  }
  return seen;
}

class CudaLinear : public testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  std::int64_t unit() const { return std::max<std::int64_t>(dtype_info(dtype()).block_length, 32); }

  std::vector<float> run(HostCuda& cuda, const PackedWeights& weights, const std::vector<float>& in,
                         std::int64_t tokens, const float* gain) {
    const std::int64_t rows = weights.matrix.rows;
    std::vector<float> out(static_cast<std::size_t>(tokens * rows), NAN);
    std::vector<float> copy = in;
    cuda.backend->linear({.in = f32_view(copy.data(), tokens, weights.matrix.cols),
                          .norm = {.weight = gain, .eps = 1e-5F},
                          .weight = &weights.matrix,
                          .out = f32_view(out.data(), tokens, rows)});
    cuda.finish();
    return out;
  }

  void expect_product(std::int64_t tokens, std::int64_t rows, std::int64_t cols,
                      std::uint64_t order) {
    const auto seed = static_cast<std::uint32_t>(tokens * 1000 + rows * 10 + cols);
    SCOPED_TRACE("tokens " + std::to_string(tokens) + ", rows " + std::to_string(rows) + ", cols " +
                 std::to_string(cols) + ", order " + std::to_string(order));
    HostCuda cuda(kLimits, order);
    const StoredMatrix stored = random_matrix(dtype(), rows, cols, seed);
    const PackedWeights weights(*cuda.backend, {&stored});
    const std::vector<float> in = random_floats(tokens * cols, seed + 1);
    const std::vector<float> out = run(cuda, weights, in, tokens, nullptr);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::vector<double> seen =
          as_seen(in.data() + t * cols, cols, nullptr, quantises(dtype()));
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0, magnitude = 0;
        for (std::int64_t c = 0; c < cols; ++c) {
          const double product = stored.at(r, c) * seen[static_cast<std::size_t>(c)];
          sum += product;
          magnitude += std::fabs(product);
        }
        ASSERT_NEAR(out[static_cast<std::size_t>(t * rows + r)], sum, kTolerance * magnitude)
            << "token " << t << ", row " << r;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Types, CudaLinear, testing::ValuesIn(kCudaTypes), [](const auto& tested) {
  return std::string(dtype_info(tested.param).name);
});

TEST_P(CudaLinear, EqualsADoubleLoop) {
  expect_product(1, 40, 2 * unit(), 0);
  expect_product(1, 21, 1024, 3);
  expect_product(3, 37, unit(), 4);
  expect_product(9, 16, 3 * unit(), 5);
  expect_product(19, 40, 2 * unit(), 6);
  expect_product(33, 131, unit(), 1);
}

TEST_P(CudaLinear, GivesTheSameBitsForAnyNumberOfTokens) {
  constexpr std::int64_t kTokens = 33, kRows = 35, kCols = 1024;
  HostCuda cuda(kLimits);
  const StoredMatrix stored = random_matrix(dtype(), kRows, kCols, 7);
  const PackedWeights weights(*cuda.backend, {&stored});
  const std::vector<float> in = random_floats(kTokens * kCols, 8);
  const std::vector<float> gain = random_floats(kCols, 9);
  const std::vector<float> whole = run(cuda, weights, in, kTokens, gain.data());
  for (const std::int64_t tokens : {1, 2, 9, 17}) {
    const std::vector<float> some_in(in.begin() + 5 * kCols, in.begin() + (5 + tokens) * kCols);
    const std::vector<float> some = run(cuda, weights, some_in, tokens, gain.data());
    EXPECT_TRUE(std::equal(some.begin(), some.end(), whole.begin() + 5 * kRows)) << tokens;
  }
}

// What the CPU's kernels give for the same call.
std::vector<float> on_cpu(const LinearCall& call, const std::vector<const StoredMatrix*>& parts,
                          std::vector<float> out) {
  const auto cpu = std::move(
      *make_cpu_backend({.threads = 1, .cpus = {}, .spin = false, .path = CpuPath::scalar}));
  AlignedBytes workspace(cpu->workspace_bytes(kLimits));
  EXPECT_TRUE(cpu->set_workspace(kLimits, workspace.span()));
  PackedWeights weights(*cpu, parts);
  weights.matrix.segment_cols = call.weight->segment_cols;
  LinearCall own = call;
  own.weight = &weights.matrix;
  own.out.data = out.data();
  cpu->linear(own);
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(static_cast<double>(want[i])))) << i;
  }
}

TEST_P(CudaLinear, AddsUpSegmentsAsTheCpuDoes) {
  constexpr std::int64_t kRows = 32;
  const std::int64_t cols = 3 * unit() + unit();
  for (const std::int64_t tokens : {1, 5, 18}) {
    HostCuda cuda(kLimits);
    const StoredMatrix stored = random_matrix(dtype(), kRows, cols, 3);
    PackedWeights weights(*cuda.backend, {&stored});
    weights.matrix.segment_cols = unit();
    std::vector<float> in = random_floats(tokens * cols, 4);
    std::vector<float> out = random_floats(tokens * kRows, 5);
    const LinearCall call{.in = f32_view(in.data(), tokens, cols),
                          .norm = {},
                          .weight = &weights.matrix,
                          .epilogue = Epilogue::add,
                          .out = f32_view(out.data(), tokens, kRows)};
    const std::vector<float> want = on_cpu(call, {&stored}, out);
    cuda.backend->linear(call);
    cuda.finish();
    expect_near(out, want, 2e-5);
  }
}

TEST_P(CudaLinear, MultipliesGateAndUp) {
  constexpr std::int64_t kRows = 24;
  for (const std::int64_t tokens : {1, 4, 17}) {
    const Epilogue epilogue = tokens == 4 ? Epilogue::gelu_mul : Epilogue::silu_mul;
    HostCuda cuda(kLimits);
    const StoredMatrix gate = random_matrix(dtype(), kRows, 512, 3);
    const StoredMatrix up = random_matrix(dtype(), kRows, 512, 13);
    const PackedWeights weights(*cuda.backend, {&gate, &up});
    std::vector<float> in = random_floats(tokens * 512, 4);
    std::vector<float> out(static_cast<std::size_t>(tokens * kRows), NAN);
    const LinearCall call{.in = f32_view(in.data(), tokens, 512),
                          .norm = {},
                          .weight = &weights.matrix,
                          .epilogue = epilogue,
                          .out = f32_view(out.data(), tokens, kRows)};
    const std::vector<float> want = on_cpu(call, {&gate, &up}, out);
    cuda.backend->linear(call);
    cuda.finish();
    expect_near(out, want, 1e-4);
  }
}

TEST(CudaLinearCall, WritesPartsOfDifferentTypesSideBySide) {
  HostCuda cuda(kLimits);
  const StoredMatrix q = random_matrix(DType::q4_1, 20, 256, 3);
  const StoredMatrix k = random_matrix(DType::f16, 5, 256, 4);
  const StoredMatrix v = random_matrix(DType::q6_k, 18, 256, 5);
  const PackedWeights weights(*cuda.backend, {&q, &k, &v});
  std::vector<float> in = random_floats(3 * 256, 6);
  std::vector<float> out(3 * 43, NAN);
  const LinearCall call{.in = f32_view(in.data(), 3, 256),
                        .norm = {},
                        .weight = &weights.matrix,
                        .out = f32_view(out.data(), 3, 43)};
  const std::vector<float> want = on_cpu(call, {&q, &k, &v}, out);
  cuda.backend->linear(call);
  cuda.finish();
  expect_near(out, want, 1e-4);
}

TEST(CudaLinearCall, TakesARangeOfRows) {
  HostCuda cuda(kLimits);
  const StoredMatrix stored = random_matrix(DType::q8_0, 70, 256, 3);
  const PackedWeights weights(*cuda.backend, {&stored});
  for (const std::int64_t tokens : {1, 3, 17}) {
    std::vector<float> in = random_floats(tokens * 256, 6);
    std::vector<float> out(static_cast<std::size_t>(tokens * 37), NAN);
    const LinearCall call{.in = f32_view(in.data(), tokens, 256),
                          .norm = {},
                          .weight = &weights.matrix,
                          .row_begin = 16,
                          .row_end = 53,
                          .out = f32_view(out.data(), tokens, 37)};
    const std::vector<float> want = on_cpu(call, {&stored}, out);
    cuda.backend->linear(call);
    cuda.finish();
    expect_near(out, want, 1e-4);
  }
}

TEST(CudaLinearCall, AnInfiniteInputShowsInItsTokenAlone) {
  HostCuda cuda(kLimits);
  const StoredMatrix stored = random_matrix(DType::q4_0, 16, 256, 3);
  const PackedWeights weights(*cuda.backend, {&stored});
  std::vector<float> in = random_floats(3 * 256, 6);
  in[256 + 100] = INFINITY;
  std::vector<float> out(3 * 16, 0);
  cuda.backend->linear({.in = f32_view(in.data(), 3, 256),
                        .norm = {},
                        .weight = &weights.matrix,
                        .out = f32_view(out.data(), 3, 16)});
  cuda.finish();
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 16 == 1) << i;
}

TEST(CudaLinearCall, GateAndUpOfDifferentTypesAreRefusedInWords) {
  HostCuda cuda(kLimits);
  const StoredMatrix gate = random_matrix(DType::q4_0, 16, 256, 3);
  const StoredMatrix up = random_matrix(DType::q8_0, 16, 256, 3);
  const PackedWeights weights(*cuda.backend, {&gate, &up});
  std::vector<float> in = random_floats(256, 6);
  std::vector<float> out(16);
  cuda.backend->linear({.in = f32_view(in.data(), 1, 256),
                        .norm = {},
                        .weight = &weights.matrix,
                        .epilogue = Epilogue::silu_mul,
                        .out = f32_view(out.data(), 1, 16)});
  const auto read = cuda.backend->read(f32_view(out.data(), 1, 16), out);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("Q4_0, Q8_0"), std::string::npos) << read.error().message;
}

}  // namespace
}  // namespace plimsoll
