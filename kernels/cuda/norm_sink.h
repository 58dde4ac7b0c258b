// NormSink: where the norm before a linear of the CUDA backend goes, for a kernel that computes it
// together with what comes before.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::cuda {

// Which norm somebody else computes, of the call that comes next.
struct TakenNorm {
  const void* in = nullptr;
  std::int64_t rows = 0;
  const float* weight = nullptr;

  static TakenNorm of(const TensorView& in, const Norm& norm) {
    return {.in = in.data, .rows = in.rows, .weight = norm.weight};
  }
  bool operator==(const TakenNorm&) const = default;
};

class NormSink {
 public:
  virtual ~NormSink() = default;
  // What rms_norm would be given for linear({.in, .norm, .weight}), if that is the next call of the
  // backend, which then takes it as computed. A call of anything else forgets it.
  virtual NormArguments take_norm(TensorView in, Norm norm, const PackedMatrix& weight) = 0;
};

}  // namespace plimsoll::cuda
