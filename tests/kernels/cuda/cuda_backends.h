// CudaBackends: the CUDA backend on the host executor, for tests that compare it.
#pragma once

#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll {

// To ThreadSanitizer each CUDA thread is a thread, which takes it a millisecond to begin.
#if defined(__SANITIZE_THREAD__)
inline constexpr DType kCudaTypes[] = {DType::f16, DType::q5_1, DType::q6_k};
#else
inline constexpr const DType (&kCudaTypes)[std::size(kAllDTypes)] = kAllDTypes;
#endif

// Device memory is memory here, so that tests give the backend their own tensors.
struct HostCuda {
  explicit HostCuda(const BackendLimits& limits, std::uint64_t seed = 2)
      : backend(
            make_cuda_backend(cuda::make_host_runtime({.memory = Bytes{64} << 20, .seed = seed}))),
        workspace(backend->workspace_bytes(limits)) {
    EXPECT_TRUE(backend->set_workspace(limits, workspace.span()));
  }
  // Runs what was enqueued.
  void finish() {
    const auto done = backend->read(f32_view(nullptr, 0, 0), {});
    ASSERT_TRUE(done) << done.error().message;
  }
  std::unique_ptr<Backend> backend;
  AlignedBytes workspace;
};

}  // namespace plimsoll
