// RmsNorm: x = in / sqrt(mean(in²) + eps) * weight of each token, then quantised to int8 with a
// scale of each 32 columns, or stored as f32, or added to something; without a weight x = in.
//
// A block is a token of [tokens, cols]. Sums of squares are f32: of each thread's columns, of a
// warp by shuffles, of warps in order. A warp quantises 32 columns at a time, a lane each: scale =
// max |x| / 127. 32 columns that hold an infinity or a NaN get a NaN as scale, so that their
// token's outputs show it.
#include "kernels/cuda/rms_norm.cuh"

namespace plimsoll::cuda {

KERNEL(rms_norm, NormArguments, 256) {
  SHARED(float, of_warp, [8]);
  norm_token(args, blockIdx.x, of_warp);
}

}  // namespace plimsoll::cuda
