// LinearEnd: where the sums of one output of a linear go.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::dev {

DEVICE bool is_gated(cuda::LinearEnd end) {
  return end == cuda::LinearEnd::silu_mul || end == cuda::LinearEnd::gelu_mul;
}

DEVICE float silu(float x) { return x / (1.0F + expf(-x)); }

// tanh(u) = 2 sigmoid(2u) - 1.
DEVICE float gelu(float x) {
  return x / (1.0F + expf(-1.5957691216F * (x + 0.044715F * x * x * x)));
}

// `row` counts from the first row of the group; rows outside the call's are skipped.
DEVICE void finish(const cuda::LinearArguments& args, int row, int token, double sum, double up) {
  if (row < args.row_begin || row >= args.row_end || token >= args.tokens) return;
  const std::int64_t at = token * args.stride + row - args.row_begin;
  switch (args.end) {
    case cuda::LinearEnd::store:
      args.out[at] = static_cast<float>(sum);
      return;
    case cuda::LinearEnd::add:
      args.out[at] = static_cast<float>(static_cast<double>(args.out[at]) + sum);
      return;
    case cuda::LinearEnd::partial:
      args.sums[at] = sum;
      return;
    case cuda::LinearEnd::silu_mul:
      args.out[at] = silu(static_cast<float>(sum)) * static_cast<float>(up);
      return;
    case cuda::LinearEnd::gelu_mul:
      args.out[at] = gelu(static_cast<float>(sum)) * static_cast<float>(up);
      return;
  }
}

}  // namespace plimsoll::dev
