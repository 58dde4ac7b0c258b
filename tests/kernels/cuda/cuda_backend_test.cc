#include "kernels/cuda/cuda_backend.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/cuda/cuda_backends.h"

namespace plimsoll {
namespace {

constexpr BackendLimits kLimits{.tokens_max = 4,
                                .cols_max = 64,
                                .rows_max = 64,
                                .context_max = 64,
                                .heads_max = 2,
                                .head_dim = 16};

TEST(CudaBackend, SaysWhatItRunsOn) {
  HostCuda cuda(kLimits);
  EXPECT_EQ(cuda.backend->description(), "cuda on the host executor (seed 2), int8 activations");
}

TEST(CudaBackend, ReadsWhatWasComputedAndNothingBefore) {
  HostCuda cuda(kLimits);
  const std::vector<float> values = {1, 2, 3, 4};
  DeviceMemory& memory = *cuda.backend->device_memory();
  const auto device = *memory.allocate(16, "values");
  ASSERT_TRUE(memory.write(std::as_bytes(std::span(values)), device.data()));
  std::vector<float> host(4);
  const auto read =
      cuda.backend->read(f32_view(reinterpret_cast<float*>(device.data()), 2, 2), host);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->data, host.data());
  EXPECT_EQ(host, values);
}

TEST(CudaBackend, RefusesAWorkspaceThatIsTooSmall) {
  const auto backend = make_cuda_backend(cuda::make_host_runtime({.memory = 1 << 20}));
  AlignedBytes small(backend->workspace_bytes(kLimits) - 1);
  const Status status = backend->set_workspace(kLimits, small.span());
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("needed"), std::string::npos);
}

TEST(CudaBackend, RefusesFloatWeightsThatLanesCannotRead) {
  HostCuda cuda(kLimits);
  const StoredMatrix stored = random_matrix(DType::f16, 16, 12, 1);
  AlignedBytes destination(packed_bytes(DType::f16, 16, 12));
  const auto packed = cuda.backend->pack(stored.slice(), destination.span());
  ASSERT_FALSE(packed);
  EXPECT_NE(packed.error().message.find("12 columns"), std::string::npos);
}

TEST(CudaBackend, AStepMayBeginBeforeTheOneBeforeWasRead) {
  HostCuda cuda(kLimits);
  const StoredMatrix stored = random_matrix(DType::f32, 16, 32, 1);
  const PackedWeights weights(*cuda.backend, {&stored});
  std::vector<float> first(32), second(32);
  cuda.backend->embed(weights.matrix, std::vector<std::int32_t>{3}, 1.0F,
                      f32_view(first.data(), 1, 32));
  cuda.backend->embed(weights.matrix, std::vector<std::int32_t>{9}, 1.0F,
                      f32_view(second.data(), 1, 32));
  cuda.finish();
  EXPECT_EQ(first[5], static_cast<float>(stored.at(3, 5)));
  EXPECT_EQ(second[5], static_cast<float>(stored.at(9, 5)));
}

TEST(CudaBackend, AddsNormedRowsAndClearsThem) {
  HostCuda cuda(kLimits);
  const std::vector<float> in = {1, 2, 3, 4, 0, 0, 0, 8};
  std::vector<float> sums = in, gain = {1, 1, 2, 1}, out(8, 10.0F);
  cuda.backend->add_normed(f32_view(sums.data(), 2, 4), {gain.data(), 0},
                           f32_view(out.data(), 2, 4));
  cuda.finish();
  const double rms[] = {std::sqrt(30.0 / 4), 4};
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(out[i], 10 + in[i] / rms[i / 4] * gain[i % 4], 1e-5) << i;
    EXPECT_EQ(sums[i], 0) << i;
  }
}

}  // namespace
}  // namespace plimsoll
