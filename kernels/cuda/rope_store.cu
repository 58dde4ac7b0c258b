// RopeStore: of each new token: bias, norm and rotation of each head of Q and K; Q goes back to its
// place, scaled; K and V to the token's page, as f16.
//
//   x = in + bias;  x = x / sqrt(mean(x²) + eps) * weight;  (x, y) = (x cos - y sin, y cos + x sin)
// grid ((heads + 2 kv_heads) / 4, tokens), 128 threads: a warp has a head; a lane has every 32nd
// pair and every 32nd dimension that is not rotated. Sums of squares are f32, over lanes by
// shuffles. A page holds K transposed [head_dim][32] and then V [32][head_dim] (kernels/backend.h).
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernel_arguments.h"
#include "kernels/cuda/page.cuh"

namespace plimsoll::cuda {
namespace {

constexpr int kWarps = 4;

// One head of one token, as it is read: biased, then multiplied by `factor` and a weight.
struct Head {
  const float* in;
  const float* bias;    // or nullptr
  const float* weight;  // or nullptr
  float factor;
  DEVICE float biased(int d) const { return bias == nullptr ? in[d] : in[d] + bias[d]; }
  DEVICE float value(int d) const {
    return weight == nullptr ? biased(d) : biased(d) * factor * weight[d];
  }
};

struct Pair {
  float x, y;
};

struct PlaceOfPair {
  int x, y;
};

DEVICE PlaceOfPair place_of(const RopeArguments& args, int j) {
  if (args.interleaved != 0) return {2 * j, 2 * j + 1};
  return {j, j + args.half_dim};
}

DEVICE Pair rotated(const RopeArguments& args, const Head& head, int position, int j) {
  const std::int64_t at = static_cast<std::int64_t>(position) * args.half_dim + j;
  const PlaceOfPair place = place_of(args, j);
  const float x = head.value(place.x);
  const float y = head.value(place.y);
  return {x * args.cos[at] - y * args.sin[at], y * args.cos[at] + x * args.sin[at]};
}

// Calls put(d, value) for each dimension of the lane.
template <typename Put>
DEVICE void rotate(const RopeArguments& args, const Head& head, int position, const Put& put) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int j = lane; j < args.half_dim; j += 32) {
    const Pair pair = rotated(args, head, position, j);
    const PlaceOfPair place = place_of(args, j);
    put(place.x, pair.x);
    put(place.y, pair.y);
  }
  for (int d = 2 * args.half_dim + lane; d < args.pages.head_dim; d += 32) put(d, head.value(d));
}

DEVICE float norm_factor(const Head& head, int head_dim, float eps) {
  float sum = 0;
  for (int d = static_cast<int>(threadIdx.x) % 32; d < head_dim; d += 32) {
    sum += head.biased(d) * head.biased(d);
  }
  return 1.0F / sqrtf(dev::warp_sum(sum) / static_cast<float>(head_dim) + eps);
}

}  // namespace

KERNEL(rope_store, RopeArguments, 128) {
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int kv_heads = args.pages.kv_heads;
  const int dim = args.pages.head_dim;
  if (index >= args.heads + 2 * kv_heads) return;  // whole warps: nobody waits for them
  const int token = static_cast<int>(blockIdx.y);
  const int position = args.positions[token];
  float* in = args.qkv + token * args.qkv_stride + static_cast<std::int64_t>(index) * dim;
  Head head{in, args.bias == nullptr ? nullptr : args.bias + static_cast<std::int64_t>(index) * dim,
            nullptr, 1.0F};
  if (index < args.heads + kv_heads) {
    const bool is_query = index < args.heads;
    head.weight = is_query ? args.q_norm : args.k_norm;
    if (head.weight != nullptr) {
      head.factor = norm_factor(head, dim, is_query ? args.q_eps : args.k_eps);
    }
  }
  if (index < args.heads) {
    rotate(args, head, position, [&](int d, float value) { in[d] = value * args.query_scale; });
    return;
  }
  const int block = args.tables[args.table_begin[token] + position / kPageTokens];
  const int slot = position % kPageTokens;
  const int kv_head = (index - args.heads) % kv_heads;
  std::uint16_t* keys = dev::page_of(args.pages, block, kv_head);
  if (index < args.heads + kv_heads) {
    rotate(args, head, position,
           [&](int d, float value) { keys[d * kPageTokens + slot] = dev::float_to_half(value); });
    return;
  }
  std::uint16_t* values = keys + dim * kPageTokens + slot * dim;
  for (int d = static_cast<int>(threadIdx.x) % 32; d < dim; d += 32) {
    values[d] = dev::float_to_half(head.value(d));
  }
}

}  // namespace plimsoll::cuda
