// Launches: for each kernel, which variant and what grid a call needs. Pure.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_runtime.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::cuda {

struct ChosenKernel {
  Kernel kernel = Kernel::embed_rows;
  LaunchShape shape;
};

// By the number of tokens among kernels that give the same bits.
ChosenKernel choose_linear(WeightFormat format, const LinearArguments& call);
// Columns that are summed in f32 where the weight has no segments of its own: a sixteenth of
// quantised ones, so that every half-warp has some; all of others.
std::int32_t default_segment_cols(WeightFormat format, std::int64_t cols);

struct AttentionSize {
  std::int64_t tiles = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t splits = 1;  // 1 where blocks go through all of them
};
ChosenKernel choose_attention(const AttentionSize& size);

// Whether splits of a step become blocks of their own: where tokens are so few that they leave
// multiprocessors idle.
bool splits_attention(std::int64_t tokens, std::int64_t splits_max);
// Pairs of token and split that partial results are kept for.
constexpr std::int64_t kPartialsMax = 1024;

}  // namespace plimsoll::cuda
