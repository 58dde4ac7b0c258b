// Launches: for each kernel, which variant and what grid a call needs. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cuda/device_runtime.h"
#include "kernels/cuda/ipc_layout.cuh"
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

// --- all-reduce over peers' memory ---

enum class PeerLink {
  nvlink,
  pcie,  // and the host executor
};

struct ReduceSize {
  int ranks = 2;
  std::int64_t pairs = 0;  // of elements, of the whole message
  std::int64_t half_bytes = 0;
  PeerLink link = PeerLink::pcie;
};
struct ChosenReduce {
  Kernel kernel = Kernel::all_reduce_one_shot;
  LaunchShape shape;
  std::int64_t pairs = 0;  // of one launch; longer messages take several
};
// As published for other servers' kernels; what a test at start measures replaces it.
ReduceKind published_kind(const ReduceSize& size);
// The same on every rank, or they wait for each other for ever.
ChosenReduce choose_all_reduce(const ReduceSize& size, ReduceKind kind);
// With the norm of `tokens` rows in the same kernel: where one launch in one shot takes all of the
// message.
std::optional<ChosenReduce> choose_all_reduce_norm(const ReduceSize& size, ReduceKind kind,
                                                   std::int64_t tokens);

LaunchShape add_sums_shape(std::int64_t count);

}  // namespace plimsoll::cuda
