#include "kernels/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_features.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll {
namespace {

constexpr BackendLimits kLimits{.tokens_max = 8,
                                .cols_max = 64,
                                .rows_max = 64,
                                .context_max = 64,
                                .heads_max = 2,
                                .head_dim = 16};

TEST(CpuBackend, NamesItsPathThreadsAndActivations) {
  CpuBackendOptions options{
      .threads = 2, .cpus = {}, .spin = false, .path = CpuPath::scalar, .activations = {}};
  EXPECT_EQ((*make_cpu_backend(options))->description(), "cpu scalar, 2 threads, int8 activations");
  options.threads = 1;
  options.activations = Activations::f32;
  EXPECT_EQ((*make_cpu_backend(options))->description(), "cpu scalar, 1 thread, f32 activations");
}

TEST(CpuBackend, PathNamesCanBeReadBack) {
  for (const CpuPath path : {CpuPath::scalar, CpuPath::avx2, CpuPath::avx512}) {
    EXPECT_EQ(parse_cpu_path(cpu_path_name(path)), path);
  }
  EXPECT_EQ(parse_cpu_path("neon"), std::nullopt);
}

TEST(CpuBackend, TakesTheBestPathUnlessToldOtherwise) {
  const auto backend = make_cpu_backend({});
  ASSERT_TRUE(backend) << backend.error().message;
  EXPECT_NE((*backend)->description().find(cpu_path_name(best_cpu_path())), std::string::npos);
  EXPECT_TRUE(cpu_path_runs_here(best_cpu_path()));
}

TEST(CpuBackend, RefusesAPathThatThisMachineCannotRun) {
  for (const CpuPath path : {CpuPath::avx2, CpuPath::avx512}) {
    CpuBackendOptions options;
    options.path = path;
    const auto backend = make_cpu_backend(options);
    ASSERT_EQ(backend.has_value(), cpu_path_runs_here(path));
    if (backend) continue;
    EXPECT_EQ(backend.error().code, Code::invalid);
    EXPECT_NE(backend.error().message.find(cpu_path_name(path)), std::string::npos);
  }
}

TEST(CpuBackend, TheRefusalSaysWhatIsMissingAndWhatWouldRun) {
  CpuFeatures features;  // of a machine without any vector extension
  const Error error = path_refusal(features, CpuPath::avx512);
  EXPECT_EQ(error.code, Code::invalid);
  EXPECT_NE(error.message.find("avx512-vnni"), std::string::npos);
  EXPECT_NE(error.message.find("AVX-512BW"), std::string::npos);
  EXPECT_NE(error.message.find("scalar"), std::string::npos);
}

TEST(CpuBackend, PassesOnWhyThreadsCouldNotStart) {
  CpuBackendOptions options;
  options.threads = 2;
  options.cpus = {0};
  const auto backend = make_cpu_backend(options);
  ASSERT_FALSE(backend);
  EXPECT_NE(backend.error().message.find("2 threads"), std::string::npos);
}

TEST(CpuBackend, RefusesAWorkspaceThatIsTooSmallOrUnaligned) {
  const auto backend = std::move(*make_cpu_backend({}));
  AlignedBytes memory(backend->workspace_bytes(kLimits) + 64);
  const auto bytes = static_cast<std::size_t>(backend->workspace_bytes(kLimits));
  EXPECT_TRUE(backend->set_workspace(kLimits, memory.span().first(bytes)));
  EXPECT_FALSE(backend->set_workspace(kLimits, memory.span().first(bytes - 1)));
  EXPECT_FALSE(backend->set_workspace(kLimits, memory.span().subspan(8, bytes)));
}

TEST(CpuBackend, RefusesToPackASliceThatIsNotWholeBlocks) {
  const auto backend = std::move(*make_cpu_backend({}));
  const StoredMatrix stored = random_matrix(DType::q4_1, 4, 64, 1);
  AlignedBytes memory(packed_bytes(DType::q4_1, 4, 32));
  StoredSlice slice = stored.slice();
  slice.col_begin = 16;
  slice.col_end = 48;
  const auto part = backend->pack(slice, memory.span());
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().code, Code::invalid);
  slice.col_begin = 32;
  slice.col_end = 64;
  EXPECT_TRUE(backend->pack(slice, memory.span()));
}

TEST(CpuBackend, PacksTheSameWithAnyNumberOfThreads) {
  const StoredMatrix stored = random_matrix(DType::q6_k, 100, 512, 2);
  AlignedBytes alone(packed_bytes(DType::q6_k, 100, 512));
  AlignedBytes shared(packed_bytes(DType::q6_k, 100, 512));
  CpuBackendOptions options;
  ASSERT_TRUE((*make_cpu_backend(options))->pack(stored.slice(), alone.span()));
  options.threads = 3;
  ASSERT_TRUE((*make_cpu_backend(options))->pack(stored.slice(), shared.span()));
  EXPECT_TRUE(std::ranges::equal(alone.span(), shared.span()));
}

TEST(CpuBackendDeathTest, AnInvalidCallInAStepEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto backend = std::move(*make_cpu_backend({}));
  EXPECT_DEATH(backend->linear({}), "linear: no weight");
}

}  // namespace
}  // namespace plimsoll
