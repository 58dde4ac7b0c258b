// RowSampler: draws tokens from logits that lie on the device, so that ids come back in place of
// them.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/device_runtime.h"
#include "kernels/cuda/kernel_arguments.h"
#include "kernels/tensor.h"
#include "shared/base/result.h"

namespace plimsoll::cuda {

class RowSampler {
 public:
  // Of scratch memory on the device, and of host memory.
  static constexpr Bytes kBytesARow = sizeof(RowSample) + sizeof(std::int32_t);
  static bool fits(std::int64_t vocab) {
    return vocab <= std::int64_t{kSampleChunk} * kSampleChunksMax;
  }

  // Before the first step. Errors: the runtime's.
  Status start(DeviceRuntime& runtime, std::int64_t rows_max);
  // Enqueues; what comes of it is in tokens() once the stream has been waited for. REQUIRES: a row
  // of logits each; `scratch` has kBytesARow a row; the call before was waited for.
  void sample(DeviceRuntime& runtime, TensorView logits, std::span<const RowSample> rows,
              std::byte* scratch);
  std::span<const std::int32_t> tokens() const { return tokens_.first(count_); }

 private:
  std::span<RowSample> rows_;
  std::span<std::int32_t> tokens_;
  std::size_t count_ = 0;
};

}  // namespace plimsoll::cuda

namespace plimsoll {

// Of a backend that records steps and draws from their logits.
class RowSampling {
 public:
  virtual ~RowSampling() = default;
  virtual bool can_sample(std::int64_t vocab) const = 0;
  struct Sampled {
    std::span<const std::int32_t> tokens;  // kUnsoundLogits and kSampleOnHost where there is none
    TensorView logits;                     // no rows where all tokens are there
  };
  // Backend::replay() with tokens in place of logits, one of each of the first rows; valid until
  // the next call.
  virtual Result<Sampled> replay_and_sample(const DecodeInputs& inputs,
                                            std::span<const cuda::RowSample> rows) = 0;
};

// nullptr: it has none.
inline RowSampling* row_sampling(Backend& backend) { return dynamic_cast<RowSampling*>(&backend); }

}  // namespace plimsoll
