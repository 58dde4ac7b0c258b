#include "kernels/cuda/launches.h"

#include <algorithm>

#include "shared/base/check.h"
#include "shared/base/units.h"

namespace plimsoll::cuda {
namespace {

constexpr unsigned kLinearThreads = 256;
constexpr std::int64_t kFewTokensMax = 16;
constexpr std::int64_t kMmaTokens = 8;
constexpr std::int64_t kManyTokens = 32;
constexpr std::int64_t kGroupsOfMany = 8;
constexpr std::int64_t kFloatRows = 8;
constexpr std::int64_t kFloatTokens = 4;
constexpr unsigned kAttentionThreads = 128;
constexpr std::int64_t kAttentionWarps = 4;
constexpr std::int64_t kHalfWarps = 16;

unsigned grid_size(std::int64_t count) { return static_cast<unsigned>(count); }

Kernel float_kernel(WeightFormat format, bool has_one_token) {
  switch (format) {
    case WeightFormat::f16:
      return has_one_token ? Kernel::linear_f16_one : Kernel::linear_f16;
    case WeightFormat::bf16:
      return has_one_token ? Kernel::linear_bf16_one : Kernel::linear_bf16;
    default:
      CHECK(format == WeightFormat::f32);
      return has_one_token ? Kernel::linear_f32_one : Kernel::linear_f32;
  }
}

// Kernels of one stem stand in the list in the order of WeightFormat.
Kernel of_format(Kernel q4_0, WeightFormat format) {
  const int offset = static_cast<int>(format) - static_cast<int>(WeightFormat::q4_0);
  CHECK(offset >= 0);
  return static_cast<Kernel>(static_cast<int>(q4_0) + offset);
}

}  // namespace

ChosenKernel choose_linear(WeightFormat format, const LinearArguments& call) {
  const std::int64_t rows = call.row_end - call.row_begin;
  const bool is_float =
      format == WeightFormat::f32 || format == WeightFormat::f16 || format == WeightFormat::bf16;
  ChosenKernel chosen;
  chosen.shape.block.x = kLinearThreads;
  if (is_float) {
    chosen.kernel = float_kernel(format, call.tokens == 1);
    chosen.shape.grid = {grid_size(ceil_div(rows, kFloatRows)),
                         grid_size(ceil_div(call.tokens, kFloatTokens))};
    return chosen;
  }
  const std::int64_t groups = ceil_div(call.row_end, kGroupRows) - call.row_begin / kGroupRows;
  if (call.tokens == 1) {
    chosen.kernel = of_format(Kernel::linear_one_q4_0, format);
    chosen.shape.grid = {grid_size(groups)};
  } else if (call.tokens <= kFewTokensMax) {
    chosen.kernel = of_format(Kernel::linear_few_q4_0, format);
    chosen.shape.grid = {grid_size(groups), grid_size(ceil_div(call.tokens, kMmaTokens))};
  } else {
    chosen.kernel = of_format(Kernel::linear_many_q4_0, format);
    chosen.shape.grid = {grid_size(ceil_div(groups, kGroupsOfMany)),
                         grid_size(ceil_div(call.tokens, kManyTokens))};
  }
  return chosen;
}

std::int32_t default_segment_cols(WeightFormat format, std::int64_t cols) {
  const bool is_float =
      format == WeightFormat::f32 || format == WeightFormat::f16 || format == WeightFormat::bf16;
  if (is_float) return static_cast<std::int32_t>(cols);
  const std::int64_t subs = ceil_div(ceil_div(cols, kSubBlockCols), kHalfWarps);
  return static_cast<std::int32_t>(subs * kSubBlockCols);
}

ChosenKernel choose_attention(const AttentionSize& size) {
  const std::int64_t head_tiles = ceil_div(size.heads / size.kv_heads, kTileRows);
  // Of attention.cu's Shared.
  const std::int64_t floats = size.head_dim * kTileRows * (2 + kAttentionWarps) +
                              kAttentionWarps * kTileRows * (32 + 2) + 4 * kTileRows;
  ChosenKernel chosen;
  chosen.kernel = size.head_dim <= 64    ? Kernel::attention_64
                  : size.head_dim <= 128 ? Kernel::attention_128
                                         : Kernel::attention_256;
  chosen.shape = {.grid = {grid_size(size.tiles), grid_size(size.kv_heads * head_tiles),
                           grid_size(size.splits)},
                  .block = {kAttentionThreads},
                  .shared_bytes = static_cast<unsigned>(floats * 4)};
  return chosen;
}

bool splits_attention(std::int64_t tokens, std::int64_t splits_max) {
  return splits_max > 1 && tokens * splits_max <= kPartialsMax;
}

namespace {

// Published, of two-byte sums; what counts is bytes on the wire, and ours are of eight. NVLink:
// vLLM's table. PCIe: FlashInfer's, which never lets four ranks write to each other at once.
std::int64_t one_shot_bytes_max(const ReduceSize& size) {
  constexpr std::int64_t kAny = std::int64_t{1} << 60U;
  if (size.ranks == 2) return kAny;
  if (size.link == PeerLink::nvlink) return size.ranks <= 4 ? 512 * kKiB : 256 * kKiB;
  return size.ranks == 4 ? 0 : 32 * kKiB;
}

// More blocks make PCIe slower.
std::int64_t reduce_blocks(const ReduceSize& size, Bytes bytes) {
  if (size.link == PeerLink::pcie) return std::clamp<std::int64_t>(bytes / (256 * kKiB), 1, 4);
  return std::clamp<std::int64_t>(bytes / (16 * kKiB), 1, kIpcBlocksMax);
}

constexpr std::int64_t kReduceThreadsMax = 512;
constexpr unsigned kNormThreads = 256;  // as rms_norm has them, or sums have other bits

}  // namespace

ReduceKind published_kind(const ReduceSize& size) {
  const Bytes bytes = size.pairs * static_cast<Bytes>(sizeof(Pair));
  if (bytes <= one_shot_bytes_max(size)) return ReduceKind::one_shot;
  return size.link == PeerLink::nvlink ? ReduceKind::two_shot : ReduceKind::staged;
}

ChosenReduce choose_all_reduce(const ReduceSize& size, ReduceKind kind) {
  CHECK(size.ranks >= 2 && size.ranks <= kIpcRanksMax);
  ChosenReduce chosen;
  chosen.kernel = kind == ReduceKind::one_shot   ? Kernel::all_reduce_one_shot
                  : kind == ReduceKind::two_shot ? Kernel::all_reduce_two_shot
                                                 : Kernel::all_reduce_staged;
  chosen.pairs = std::min(size.pairs, pairs_max(kind, size.ranks, size.half_bytes));
  const std::int64_t blocks = reduce_blocks(size, chosen.pairs * static_cast<Bytes>(sizeof(Pair)));
  chosen.shape.grid.x = grid_size(blocks);
  chosen.shape.block.x = grid_size(std::clamp<std::int64_t>(
      round_up(ceil_div(chosen.pairs, blocks), 32), 32, kReduceThreadsMax));
  return chosen;
}

std::optional<ChosenReduce> choose_all_reduce_norm(const ReduceSize& size, ReduceKind kind,
                                                   std::int64_t tokens) {
  ChosenReduce chosen = choose_all_reduce(size, kind);
  if (chosen.kernel != Kernel::all_reduce_one_shot || chosen.pairs < size.pairs)
    return std::nullopt;
  chosen.kernel = Kernel::all_reduce_norm;
  chosen.shape.grid.x = grid_size(std::min<std::int64_t>(tokens, kIpcBlocksMax));
  chosen.shape.block.x = kNormThreads;
  return chosen;
}

LaunchShape add_sums_shape(std::int64_t count) {
  constexpr std::int64_t kThreads = 256;
  constexpr std::int64_t kBlocksMax = 1024;
  return {.grid = {grid_size(std::min(ceil_div(count, kThreads), kBlocksMax))},
          .block = {grid_size(kThreads)}};
}

}  // namespace plimsoll::cuda
