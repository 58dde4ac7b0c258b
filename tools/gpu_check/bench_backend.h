// BenchBackend: a backend with memory for tensors of its own, wherever it computes, and random
// contents for them.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/result.h"

namespace plimsoll {

class BenchBackend {
 public:
  // REQUIRES: the backend outlives it.
  explicit BenchBackend(Backend& backend) : backend_(backend) {}

  Backend& backend() { return backend_; }
  Status set_limits(const BackendLimits& limits);
  // Zeroed.
  Result<std::span<std::byte>> take(Bytes bytes);
  Result<TensorView> take_f32(std::int64_t rows, std::int64_t cols);
  Result<const float*> put(std::span<const float> values);
  // A matrix of one part. Errors: the backend's.
  Result<PackedMatrix> pack(DType dtype, std::int64_t rows, std::int64_t cols,
                            std::span<const std::byte> stored);
  Result<std::vector<float>> get(TensorView from);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  Backend& backend_;
  std::vector<std::unique_ptr<std::byte, Free>> memory_;  // where it is this process's
};

// Of a normal distribution.
std::vector<float> random_floats(std::int64_t count, float spread, std::mt19937_64& random);

}  // namespace plimsoll
