// CopyRows: out[i] = in[rows[i]], f32: the rows of a step whose logits are wanted.
//
// A block is a row of out; a thread takes every blockDim'th column. No sums.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::cuda {

KERNEL(copy_rows, CopyRowsArguments, 256) {
  const float* in = args.in + static_cast<std::int64_t>(args.rows[blockIdx.x]) * args.in_stride;
  float* out = args.out + static_cast<std::int64_t>(blockIdx.x) * args.out_stride;
  for (int c = static_cast<int>(threadIdx.x); c < args.cols; c += static_cast<int>(blockDim.x)) {
    out[c] = in[c];
  }
}

}  // namespace plimsoll::cuda
