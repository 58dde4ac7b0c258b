// Linear over F32, F16 or BF16 weights: y[t, r] = sum over k of w[r, k] x[t, k], x in f32.
//
// grid (rows / 8, tokens / kTokens), 256 threads: a warp has a row and kTokens tokens, four or, of
// a step that has no more, one; a lane takes every 32nd run of 8 columns of a segment, or every
// 32nd segment where those are shorter than 32 runs. Sums: f32 of a lane's columns, f32 over lanes
// by shuffles (or of the lane's segment alone), f64 over segments; of a token the same whatever
// kTokens is. On CUDA cores: weights are read once for kTokens.
#include "kernels/cuda/linear_end.cuh"
#include "kernels/cuda/weight_formats.cuh"

namespace plimsoll::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kRun = 8;  // columns that a lane loads at once

struct F32 {
  static constexpr int kBytes = 4;
  static DEVICE void load_run(const unsigned char* from, float (&to)[kRun]) {
    const auto low = dev::load<float4>(from);
    const auto high = dev::load<float4>(from + 16);
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
  }
};

template <float (*convert)(std::uint16_t)>
struct SixteenBits {
  static constexpr int kBytes = 2;
  static DEVICE void load_run(const unsigned char* from, float (&to)[kRun]) {
    const auto words = dev::load<uint4>(from);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const unsigned word = dev::word_of(words, i / 2);
      to[i] = convert(static_cast<std::uint16_t>(i % 2 == 0 ? word & 0xffffU : word >> 16U));
    }
  }
};
using F16 = SixteenBits<dev::half_to_float>;
using BF16 = SixteenBits<dev::bfloat16_to_float>;

// Adds eight columns to the sums of the tokens.
template <typename Format, int kTokens>
DEVICE void add_run(const LinearArguments& args, const unsigned char* row, int first_token, int c,
                    float (&part)[kTokens]) {
  float w[kRun];
  Format::load_run(row + static_cast<std::int64_t>(c) * Format::kBytes, w);
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int token = min(first_token + t, args.tokens - 1);
    float x[kRun];
    F32::load_run(reinterpret_cast<const unsigned char*>(
                      args.values + static_cast<std::int64_t>(token) * args.cols + c),
                  x);
#pragma unroll
    for (int i = 0; i < kRun; ++i) part[t] += w[i] * x[i];
  }
}

// Segments that are too short for a warp: a lane has every 32nd.
template <typename Format, int kTokens>
DEVICE void add_short_segments(const LinearArguments& args, const unsigned char* row,
                               int first_token, double (&sums)[kTokens]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int step = 32 * args.segment_cols;
  for (int begin = lane * args.segment_cols; begin < args.cols; begin += step) {
    const int end = min(begin + args.segment_cols, args.cols);
    float part[kTokens] = {};
    for (int c = begin; c < end; c += kRun)
      add_run<Format, kTokens>(args, row, first_token, c, part);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) sums[t] += static_cast<double>(part[t]);
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) sums[t] = dev::warp_sum(sums[t]);
}

template <typename Format, int kTokens>
DEVICE void add_row(const LinearArguments& args, const unsigned char* weight, int row,
                    int first_token, double (&sums)[kTokens]) {
  const unsigned char* from = weight + static_cast<std::int64_t>(row) * args.cols * Format::kBytes;
  if (args.segment_cols < 32 * kRun && args.segment_cols < args.cols) {
    add_short_segments<Format, kTokens>(args, from, first_token, sums);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int begin = 0; begin < args.cols; begin += args.segment_cols) {
    const int end = min(begin + args.segment_cols, args.cols);
    float part[kTokens] = {};
#pragma unroll 4
    for (int c = begin + lane * kRun; c < end; c += 32 * kRun) {
      add_run<Format, kTokens>(args, from, first_token, c, part);
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) sums[t] += static_cast<double>(dev::warp_sum(part[t]));
  }
}

template <typename Format, int kTokens>
DEVICE void linear_float(const LinearArguments& args) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = args.row_begin + static_cast<int>(blockIdx.x) * kWarps + warp;
  if (row >= args.row_end) return;  // whole warps: nobody waits for them
  const int first_token = static_cast<int>(blockIdx.y) * kTokens;
  double sums[kTokens] = {};
  double up[kTokens] = {};
  add_row<Format, kTokens>(args, args.weight, row, first_token, sums);
  if (dev::is_gated(args.end)) add_row<Format, kTokens>(args, args.up, row, first_token, up);
  if (threadIdx.x % 32 != 0) return;
  for (int t = 0; t < kTokens; ++t) dev::finish(args, row, first_token + t, sums[t], up[t]);
}

}  // namespace

KERNEL(linear_f32, LinearArguments, 256) { linear_float<F32, 4>(args); }
KERNEL(linear_f16, LinearArguments, 256) { linear_float<F16, 4>(args); }
KERNEL(linear_bf16, LinearArguments, 256) { linear_float<BF16, 4>(args); }
KERNEL(linear_f32_one, LinearArguments, 256) { linear_float<F32, 1>(args); }
KERNEL(linear_f16_one, LinearArguments, 256) { linear_float<F16, 1>(args); }
KERNEL(linear_bf16_one, LinearArguments, 256) { linear_float<BF16, 1>(args); }

}  // namespace plimsoll::cuda
