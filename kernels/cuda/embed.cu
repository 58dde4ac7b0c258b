// Embed: out[t] = scale * row ids[t] of a packed table, dequantised.
//
// A block is a token; a thread takes every blockDim'th run of 32 columns of quantised types, and
// every blockDim'th column of the others. No sums.
#include "kernels/cuda/weight_formats.cuh"

namespace plimsoll::cuda {
namespace {

template <typename Format>
DEVICE void embed_row(const EmbedArguments& args, int id, float* out) {
  const int subs = args.cols / kSubBlockCols;
  const std::int64_t blocks = subs / Format::kSubBlocks;
  const unsigned char* group =
      args.table + static_cast<std::int64_t>(id / kGroupRows) * blocks * Format::kGroupBytes;
  const int row = id % kGroupRows;
  for (int sub = static_cast<int>(threadIdx.x); sub < subs; sub += static_cast<int>(blockDim.x)) {
    const unsigned char* block =
        group + static_cast<std::int64_t>(sub / Format::kSubBlocks) * Format::kGroupBytes;
    const int s = sub % Format::kSubBlocks;
    const dev::Factors factors = Format::factors(block, s, row);
    const dev::RowQuants<Format> quants(block, s, row);
    float* to = out + sub * kSubBlockCols;
    for (int t = 0; t < 4; ++t) {
      const dev::QuantWords words = quants.words(t);
      for (int b = 0; b < 4; ++b) {
        const auto shift = static_cast<unsigned>(8 * b);
        const int low = static_cast<std::int8_t>(words.low >> shift & 255U) - Format::kOffset;
        const int high = static_cast<std::int8_t>(words.high >> shift & 255U) - Format::kOffset;
        to[4 * t + b] = args.scale * (factors.scale[0] * static_cast<float>(low) + factors.min);
        to[16 + 4 * t + b] =
            args.scale * (factors.scale[1] * static_cast<float>(high) + factors.min);
      }
    }
  }
}

DEVICE float float_at(const EmbedArguments& args, std::int64_t index) {
  if (args.format == WeightFormat::f32) return dev::load<float>(args.table + 4 * index);
  const auto bits = dev::load<std::uint16_t>(args.table + 2 * index);
  return args.format == WeightFormat::f16 ? dev::half_to_float(bits) : dev::bfloat16_to_float(bits);
}

}  // namespace

KERNEL(embed_rows, EmbedArguments, 256) {
  const int id = args.ids[blockIdx.x];
  float* out = args.out + static_cast<std::int64_t>(blockIdx.x) * args.out_stride;
  switch (args.format) {
    case WeightFormat::q4_0:
      return embed_row<dev::FourBits<false>>(args, id, out);
    case WeightFormat::q4_1:
      return embed_row<dev::FourBits<true>>(args, id, out);
    case WeightFormat::q5_0:
      return embed_row<dev::FiveBits<false>>(args, id, out);
    case WeightFormat::q5_1:
      return embed_row<dev::FiveBits<true>>(args, id, out);
    case WeightFormat::q8_0:
      return embed_row<dev::EightBits>(args, id, out);
    case WeightFormat::q4_k:
      return embed_row<dev::FourBitsK>(args, id, out);
    case WeightFormat::q5_k:
      return embed_row<dev::FiveBitsK>(args, id, out);
    case WeightFormat::q6_k:
      return embed_row<dev::SixBitsK>(args, id, out);
    default:
      break;
  }
  const std::int64_t first = static_cast<std::int64_t>(id) * args.cols;
  for (int c = static_cast<int>(threadIdx.x); c < args.cols; c += static_cast<int>(blockDim.x)) {
    out[c] = args.scale * float_at(args, first + c);
  }
}

}  // namespace plimsoll::cuda
