// Linear of one token at a time over quantised weights: y[r] = sum over k of w[r, k] x[k].
//
// grid (groups of 16 rows, tokens), 256 threads: half-warp j of 16 takes segments j, j + 16, … of
// the columns; a lane is a row of the group, reads 32 columns of it in one 16-byte load (the
// half-warp 256 bytes in a row), and multiplies by dp4a with x in int8. Sums of 32 columns are
// exact in int32, of a segment f32, of segments f64.
#include "kernels/cuda/linear_end.cuh"
#include "kernels/cuda/weight_formats.cuh"

namespace plimsoll::cuda {
namespace {

constexpr int kHalfWarps = 16;

template <typename Format>
DEVICE double row_sum(const LinearArguments& args, const unsigned char* group, int token,
                      int half_warp, int row) {
  const int subs = args.cols / kSubBlockCols;
  const int segment = args.segment_cols / kSubBlockCols;
  const std::int8_t* x = args.quants + static_cast<std::int64_t>(token) * args.cols;
  const ActivationScale* scales = args.scales + static_cast<std::int64_t>(token) * subs;
  double sum = 0;
  for (int begin = half_warp * segment; begin < subs; begin += kHalfWarps * segment) {
    const int end = min(begin + segment, subs);
    float part = 0;
#pragma unroll 4
    for (int sub = begin; sub < end; ++sub) {
      const unsigned char* block =
          group + static_cast<std::int64_t>(sub / Format::kSubBlocks) * Format::kGroupBytes;
      const int s = sub % Format::kSubBlocks;
      const dev::RowQuants<Format> quants(block, s, row);
      const auto* words = reinterpret_cast<const uint4*>(x + sub * kSubBlockCols);
      const uint4 low_x = words[0];
      const uint4 high_x = words[1];
      int low = 0;
      int high = 0;
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const dev::QuantWords q = quants.words(t);
        low = __dp4a(static_cast<int>(q.low), static_cast<int>(dev::word_of(low_x, t)), low);
        high = __dp4a(static_cast<int>(q.high), static_cast<int>(dev::word_of(high_x, t)), high);
      }
      part = dev::add_product<Format>(part, Format::factors(block, s, row), scales[sub], low, high);
    }
    sum += static_cast<double>(part);
  }
  return sum;
}

template <typename Format>
DEVICE void linear_one(const LinearArguments& args) {
  SHARED(double, sums, [2][kHalfWarps][kGroupRows]);
  const int thread = static_cast<int>(threadIdx.x);
  const int half_warp = thread / kGroupRows;
  const int row = thread % kGroupRows;
  const int token = static_cast<int>(blockIdx.y);
  const int group = args.row_begin / kGroupRows + static_cast<int>(blockIdx.x);
  const std::int64_t offset = static_cast<std::int64_t>(group) * (args.cols / kSubBlockCols) /
                              Format::kSubBlocks * Format::kGroupBytes;
  sums[0][half_warp][row] = row_sum<Format>(args, args.weight + offset, token, half_warp, row);
  const bool has_up = dev::is_gated(args.end);
  if (has_up) {
    sums[1][half_warp][row] = row_sum<Format>(args, args.up + offset, token, half_warp, row);
  }
  __syncthreads();
  if (thread >= kGroupRows) return;
  double sum = 0;
  double up = 0;
  for (int i = 0; i < kHalfWarps; ++i) {
    sum += sums[0][i][row];
    if (has_up) up += sums[1][i][row];
  }
  dev::finish(args, group * kGroupRows + row, token, sum, up);
}

}  // namespace

KERNEL(linear_one_q4_0, LinearArguments, 256) { linear_one<dev::FourBits<false>>(args); }
KERNEL(linear_one_q4_1, LinearArguments, 256) { linear_one<dev::FourBits<true>>(args); }
KERNEL(linear_one_q5_0, LinearArguments, 256) { linear_one<dev::FiveBits<false>>(args); }
KERNEL(linear_one_q5_1, LinearArguments, 256) { linear_one<dev::FiveBits<true>>(args); }
KERNEL(linear_one_q8_0, LinearArguments, 256) { linear_one<dev::EightBits>(args); }
KERNEL(linear_one_q4_k, LinearArguments, 256) { linear_one<dev::FourBitsK>(args); }
KERNEL(linear_one_q5_k, LinearArguments, 256) { linear_one<dev::FiveBitsK>(args); }
KERNEL(linear_one_q6_k, LinearArguments, 256) { linear_one<dev::SixBitsK>(args); }

}  // namespace plimsoll::cuda
