// Linear of many tokens over quantised weights on tensor cores: y[t, r] = sum over k of w[r, k]
// x[t, k].
//
// A group of 16 rows times 32 columns is the left operand of m16n8k32 as it lies in memory; the
// right one is 8 tokens. int32 products of 32 columns are exact, so that the f32 sums of a segment
// and the f64 sums of segments are those of linear.cu.
//   few    grid (groups, tokens / 8): the 8 warps of a block share a group's segments in turn, and
//          add up through shared memory. For decoding, where weights are read once.
//   many   grid (groups / 8, tokens / 32): a warp has a group and all its columns. For prompts.
// Lane 4 g + t: rows g and g + 8, tokens 2 t and 2 t + 1 of the eight.
#include "kernels/cuda/linear_end.cuh"
#include "kernels/cuda/weight_formats.cuh"

namespace plimsoll::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kMmaTokens = 8;
constexpr int kManyTiles = 4;  // of 8 tokens

struct Place {
  int warp, g, t;
  DEVICE Place()
      : warp(static_cast<int>(threadIdx.x) / 32),
        g(static_cast<int>(threadIdx.x) % 32 / 4),
        t(static_cast<int>(threadIdx.x) % 4) {}
};

// Products of 32 columns: low[i] of columns 0-15, high[i] of 16-31 where a format has two scales;
// else all in low.
template <typename Format>
DEVICE void multiply(const dev::QuantWords& upper, const dev::QuantWords& lower, unsigned x_low,
                     unsigned x_high, int (&low)[4], int (&high)[4]) {
  if constexpr (Format::kTwoScales) {
    dev::mma_s8_half(low, {upper.low, lower.low}, x_low);
    dev::mma_s8_half(high, {upper.high, lower.high}, x_high);
  } else {
    dev::mma_s8(low, {upper.low, lower.low, upper.high, lower.high}, {x_low, x_high});
  }
}

// Adds 32 columns of a group and of up to kTiles * 8 tokens to `part`.
template <typename Format, int kTiles>
DEVICE void add_sub_block(const LinearArguments& args, const unsigned char* group, int sub,
                          int first_token, const Place& at, float (&part)[kTiles][4]) {
  const int subs = args.cols / kSubBlockCols;
  const unsigned char* block =
      group + static_cast<std::int64_t>(sub / Format::kSubBlocks) * Format::kGroupBytes;
  const int s = sub % Format::kSubBlocks;
  const dev::QuantWords upper = dev::lane_words<Format>(block, s, at.g, at.t);
  const dev::QuantWords lower = dev::lane_words<Format>(block, s, at.g + 8, at.t);
  const dev::Factors factors[2] = {Format::factors(block, s, at.g),
                                   Format::factors(block, s, at.g + 8)};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    // Tokens beyond the last repeat it: their sums go nowhere.
    const int token = min(first_token + tile * kMmaTokens + at.g, args.tokens - 1);
    const auto* x = reinterpret_cast<const unsigned*>(
        args.quants + static_cast<std::int64_t>(token) * args.cols + sub * kSubBlockCols);
    int low[4] = {};
    int high[4] = {};
    multiply<Format>(upper, lower, x[at.t], x[4 + at.t], low, high);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int of = min(first_token + tile * kMmaTokens + 2 * at.t + i % 2, args.tokens - 1);
      const ActivationScale& scale = args.scales[static_cast<std::int64_t>(of) * subs + sub];
      part[tile][i] =
          dev::add_product<Format>(part[tile][i], factors[i / 2], scale, low[i], high[i]);
    }
  }
}

// Segments first, first + step, … of a group.
template <typename Format, int kTiles>
DEVICE void add_segments(const LinearArguments& args, const unsigned char* group, int first,
                         int step, int first_token, const Place& at, double (&sums)[kTiles][4]) {
  const int subs = args.cols / kSubBlockCols;
  const int segment = args.segment_cols / kSubBlockCols;
  for (int begin = first * segment; begin < subs; begin += step * segment) {
    const int end = min(begin + segment, subs);
    float part[kTiles][4] = {};
    for (int sub = begin; sub < end; ++sub) {
      add_sub_block<Format, kTiles>(args, group, sub, first_token, at, part);
    }
    for (int tile = 0; tile < kTiles; ++tile) {
      for (int i = 0; i < 4; ++i) sums[tile][i] += static_cast<double>(part[tile][i]);
    }
  }
}

template <typename Format>
DEVICE std::int64_t group_offset(const LinearArguments& args, int group) {
  return static_cast<std::int64_t>(group) * (args.cols / kSubBlockCols) / Format::kSubBlocks *
         Format::kGroupBytes;
}

template <typename Format>
DEVICE void linear_few(const LinearArguments& args) {
  SHARED(double, sums, [2][kWarps][4][32]);
  const Place at;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = args.row_begin / kGroupRows + static_cast<int>(blockIdx.x);
  const int first_token = static_cast<int>(blockIdx.y) * kMmaTokens;
  const std::int64_t offset = group_offset<Format>(args, group);
  const bool has_up = dev::is_gated(args.end);
  double own[1][4] = {};
  add_segments<Format, 1>(args, args.weight + offset, at.warp, kWarps, first_token, at, own);
  for (int i = 0; i < 4; ++i) sums[0][at.warp][i][lane] = own[0][i];
  if (has_up) {
    double up[1][4] = {};
    add_segments<Format, 1>(args, args.up + offset, at.warp, kWarps, first_token, at, up);
    for (int i = 0; i < 4; ++i) sums[1][at.warp][i][lane] = up[0][i];
  }
  __syncthreads();
  if (at.warp >= 4) return;
  const int i = at.warp;  // of the four outputs of a lane
  double sum = 0;
  double up = 0;
  for (int warp = 0; warp < kWarps; ++warp) {
    sum += sums[0][warp][i][lane];
    if (has_up) up += sums[1][warp][i][lane];
  }
  dev::finish(args, group * kGroupRows + at.g + i / 2 * 8, first_token + 2 * at.t + i % 2, sum, up);
}

template <typename Format>
DEVICE void linear_many(const LinearArguments& args) {
  const Place at;
  const int group = args.row_begin / kGroupRows + static_cast<int>(blockIdx.x) * kWarps + at.warp;
  if (group * kGroupRows >= args.row_end) return;  // whole warps: nobody waits for them
  const int first_token = static_cast<int>(blockIdx.y) * kManyTiles * kMmaTokens;
  const std::int64_t offset = group_offset<Format>(args, group);
  double sums[kManyTiles][4] = {};
  double up[kManyTiles][4] = {};
  add_segments<Format, kManyTiles>(args, args.weight + offset, 0, 1, first_token, at, sums);
  if (dev::is_gated(args.end)) {
    add_segments<Format, kManyTiles>(args, args.up + offset, 0, 1, first_token, at, up);
  }
  for (int tile = 0; tile < kManyTiles; ++tile) {
    for (int i = 0; i < 4; ++i) {
      dev::finish(args, group * kGroupRows + at.g + i / 2 * 8,
                  first_token + tile * kMmaTokens + 2 * at.t + i % 2, sums[tile][i], up[tile][i]);
    }
  }
}

}  // namespace

KERNEL(linear_few_q4_0, LinearArguments, 256) { linear_few<dev::FourBits<false>>(args); }
KERNEL(linear_few_q4_1, LinearArguments, 256) { linear_few<dev::FourBits<true>>(args); }
KERNEL(linear_few_q5_0, LinearArguments, 256) { linear_few<dev::FiveBits<false>>(args); }
KERNEL(linear_few_q5_1, LinearArguments, 256) { linear_few<dev::FiveBits<true>>(args); }
KERNEL(linear_few_q8_0, LinearArguments, 256) { linear_few<dev::EightBits>(args); }
KERNEL(linear_few_q4_k, LinearArguments, 256) { linear_few<dev::FourBitsK>(args); }
KERNEL(linear_few_q5_k, LinearArguments, 256) { linear_few<dev::FiveBitsK>(args); }
KERNEL(linear_few_q6_k, LinearArguments, 256) { linear_few<dev::SixBitsK>(args); }

KERNEL(linear_many_q4_0, LinearArguments, 256) { linear_many<dev::FourBits<false>>(args); }
KERNEL(linear_many_q4_1, LinearArguments, 256) { linear_many<dev::FourBits<true>>(args); }
KERNEL(linear_many_q5_0, LinearArguments, 256) { linear_many<dev::FiveBits<false>>(args); }
KERNEL(linear_many_q5_1, LinearArguments, 256) { linear_many<dev::FiveBits<true>>(args); }
KERNEL(linear_many_q8_0, LinearArguments, 256) { linear_many<dev::EightBits>(args); }
KERNEL(linear_many_q4_k, LinearArguments, 256) { linear_many<dev::FourBitsK>(args); }
KERNEL(linear_many_q5_k, LinearArguments, 256) { linear_many<dev::FiveBitsK>(args); }
KERNEL(linear_many_q6_k, LinearArguments, 256) { linear_many<dev::SixBitsK>(args); }

}  // namespace plimsoll::cuda
