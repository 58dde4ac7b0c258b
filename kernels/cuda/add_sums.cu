// AddSums: accumulate += sums, in f64 and rounded once: what another library has added up over
// ranks.
//
// Vectors of `count`; f64 sums, f32 accumulate. A thread takes every (gridDim * blockDim)'th.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::cuda {

KERNEL(add_sums, AddSumsArguments, 256) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < args.count; i += step) {
    args.accumulate[i] = static_cast<float>(static_cast<double>(args.accumulate[i]) + args.sums[i]);
  }
}

}  // namespace plimsoll::cuda
