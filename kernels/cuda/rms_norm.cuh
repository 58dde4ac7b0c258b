// NormToken: RMSNorm of one token by one block, as rms_norm.cu says, for kernels that end with it.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::cuda {
namespace {  // an includer's own: tests leave barriers out

constexpr float kLargest = 3.40282347e38F;  // that is finite
constexpr float kSmallestMax = 1e-30F;      // below it the inverse would overflow

DEVICE int lane_sum(int value, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(dev::kAllLanes, value, offset);
  }
  return value;
}

// On all lanes of the warp; `sub` counts 32 columns.
DEVICE void quantise(const NormArguments& args, std::int64_t token, int sub, float x) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool finite = __ballot_sync(dev::kAllLanes, !(fabsf(x) <= kLargest)) == 0;
  const float largest = dev::warp_max(fabsf(x));
  const bool some = finite && largest > kSmallestMax;
  const int quant = some ? static_cast<int>(rintf(x * (127.0F / largest))) : 0;
  const int half_sum = lane_sum(quant, 16);  // of its 16 lanes
  const int other_sum = __shfl_xor_sync(dev::kAllLanes, half_sum, 16);
  args.quants[token * args.cols + sub * kSubBlockCols + lane] = static_cast<std::int8_t>(quant);
  if (lane == 0) {
    ActivationScale& scale = args.scales[token * (args.cols / kSubBlockCols) + sub];
    scale.scale = some ? largest / 127.0F : finite ? 0.0F : nanf("");
    scale.negative_sums[0] = static_cast<std::int16_t>(-half_sum);
    scale.negative_sums[1] = static_cast<std::int16_t>(-other_sum);
  }
}

// By all threads of a block, at most 256.
DEVICE void norm_token(const NormArguments& args, std::int64_t token, float* of_warp) {
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const float* in = args.in + token * args.in_stride;
  float factor = 1;
  if (args.weight != nullptr) {
    float sum = 0;
    for (int c = thread; c < args.cols; c += threads) sum += in[c] * in[c];
    sum = dev::warp_sum(sum);
    if (thread % 32 == 0) of_warp[thread / 32] = sum;
    __syncthreads();
    float all = 0;
    for (int warp = 0; warp < threads / 32; ++warp) all += of_warp[warp];
    factor = 1.0F / sqrtf(all / static_cast<float>(args.cols) + args.eps);
  }
  const auto value = [&](int c) {
    return args.weight == nullptr ? in[c] : in[c] * factor * args.weight[c];
  };
  if (args.values != nullptr) {
    for (int c = thread; c < args.cols; c += threads) args.values[token * args.cols + c] = value(c);
  }
  if (args.added != nullptr) {
    // A column is read and cleared by the same thread, after all have summed it.
    for (int c = thread; c < args.cols; c += threads) {
      args.added[token * args.added_stride + c] += value(c);
      args.cleared[token * args.in_stride + c] = 0;
    }
  }
  if (args.quants != nullptr) {
    const int subs = args.cols / kSubBlockCols;
    for (int sub = thread / 32; sub < subs; sub += threads / 32) {
      quantise(args, token, sub, value(sub * kSubBlockCols + thread % 32));
    }
  }
}

}  // namespace
}  // namespace plimsoll::cuda
