// Attention: softmax(q · Kᵀ) · V over paged keys and values, causal, with an optional window.
//
// A tile is up to 8 rows (token and head) of one sequence that share a KV head: one token of up to
// 8 heads when decoding, several tokens of a prompt. grid (tiles, KV heads * tiles of heads, splits
// or 1), 128 threads. A split is 8 pages of 32 tokens; its pages are dealt to the 4 warps.
//   scores   a lane has a token of the page: f32 sums over head_dim in order; keys are
//   [head_dim][32] softmax  per row over the warp by shuffles; base 2 (queries come scaled by log2
//   e), f32 output   a lane has every 32nd dimension: f32 sums over the page's tokens in order
// Warps are folded in order, splits are folded in order: by the block itself, or by attention_merge
// where there are too few tiles to fill the GPU. A row's result has the same bits either way, and
// does not depend on the tile it is in.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernel_arguments.h"
#include "kernels/cuda/page.cuh"

namespace plimsoll::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;

// Factor of sums that were made with `max` where they become ones with `new_max`.
DEVICE float decay(float max, float new_max) {
  return max == -INFINITY ? 0.0F : exp2f(max - new_max);
}

struct Keys {
  int begin, end;
};

// One block's tile: which rows, and what each sees.
struct Tile {
  AttentionTile at;
  int kv_head;
  int first_head;  // in the batch's heads
  int heads;       // of the tile
  int rows;
  int window;
  int dim;

  DEVICE int token_of(int row) const { return row / heads; }
  DEVICE int head_of(int row) const { return first_head + row % heads; }
  DEVICE Keys seen(int row) const {
    const int end = at.position + token_of(row) + 1;
    return {window == 0 ? 0 : max(0, end - window), end};
  }
  DEVICE int end() const { return at.position + at.tokens; }
  DEVICE bool is_seen(int row, int key) const {
    const Keys keys = seen(row);
    return key >= keys.begin && key < keys.end;
  }
  // Whether every row sees all keys of the page that begins there.
  DEVICE bool is_whole(int first_key) const {
    return first_key >= seen(rows - 1).begin && first_key + kPageTokens <= seen(0).end;
  }
};

DEVICE Tile make_tile(const AttentionArguments& args) {
  const int group = args.heads / args.pages.kv_heads;
  const int head_tiles = (group + kTileRows - 1) / kTileRows;
  Tile tile;
  tile.at = args.tiles[blockIdx.x];
  tile.kv_head = static_cast<int>(blockIdx.y) / head_tiles;
  const int first = static_cast<int>(blockIdx.y) % head_tiles * kTileRows;
  tile.first_head = tile.kv_head * group + first;
  tile.heads = min(kTileRows, group - first);
  tile.rows = tile.at.tokens * tile.heads;
  tile.window = args.window;
  tile.dim = args.pages.head_dim;
  return tile;
}

// Dynamic shared memory, in floats.
struct Shared {
  float* query;      // [rows][dim]
  float* weights;    // [warps][rows][32]
  float* out;        // [warps][rows][dim]
  float* max;        // [warps][rows]
  float* sum;        // [warps][rows]
  float* whole;      // [rows][dim]: splits folded so far
  float* whole_max;  // [2][rows]: before and after the split
  float* whole_sum;  // [2][rows]
  DEVICE Shared(unsigned char* raw, int dim) {
    query = reinterpret_cast<float*>(raw);
    weights = query + kTileRows * dim;
    out = weights + kWarps * kTileRows * 32;
    max = out + kWarps * kTileRows * dim;
    sum = max + kWarps * kTileRows;
    whole = sum + kWarps * kTileRows;
    whole_max = whole + kTileRows * dim;
    whole_sum = whole_max + 2 * kTileRows;
  }
};

// What a warp has of a split.
template <int kDims>
struct Partial {
  float max[kTileRows];
  float sum[kTileRows];
  float out[kTileRows][kDims];  // dimension lane + 32 i
  DEVICE Partial() {
    for (int r = 0; r < kTileRows; ++r) {
      max[r] = -INFINITY;
      sum[r] = 0;
      for (int i = 0; i < kDims; ++i) out[r][i] = 0;
    }
  }
};

DEVICE void load_queries(const AttentionArguments& args, const Tile& tile, const Shared& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < tile.rows * tile.dim; i += kThreads) {
    const int row = i / tile.dim;
    const float* query = args.queries + (tile.at.row + tile.token_of(row)) * args.query_stride +
                         static_cast<std::int64_t>(tile.head_of(row)) * tile.dim;
    shared.query[i] = query[i % tile.dim];
  }
}

// scores[r] = query r · the lane's key.
DEVICE void score(const Tile& tile, const float* query, const std::uint16_t* keys, int lane,
                  float (&scores)[kTileRows]) {
  for (int r = 0; r < kTileRows; ++r) scores[r] = 0;
  for (int d = 0; d < tile.dim; ++d) {
    const float key = dev::half_to_float(keys[d * kPageTokens + lane]);
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      if (r < tile.rows) scores[r] += query[r * tile.dim + d] * key;
    }
  }
}

// Adds one page to the warp's partial. `weights` is the warp's [rows][32].
template <int kDims>
DEVICE void add_page(const Tile& tile, const Shared& shared, float* weights,
                     const std::uint16_t* keys, int first_key, Partial<kDims>& partial) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float scores[kTileRows];
  score(tile, shared.query, keys, lane, scores);
  __syncwarp();  // the page before has been read
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    if (r >= tile.rows) continue;
    const bool is_seen = tile.is_seen(r, first_key + lane);
    const float largest = fmaxf(partial.max[r], dev::warp_max(is_seen ? scores[r] : -INFINITY));
    const float weight = is_seen ? exp2f(scores[r] - largest) : 0.0F;
    const float factor = decay(partial.max[r], largest);
    partial.max[r] = largest;
    partial.sum[r] = partial.sum[r] * factor + dev::warp_sum(weight);
    for (int i = 0; i < kDims; ++i) partial.out[r][i] *= factor;
    weights[r * 32 + lane] = weight;
  }
  __syncwarp();
  const std::uint16_t* values = keys + tile.dim * kPageTokens;
  // What a row does not see may be anything, also a NaN: times a weight of 0 that is no 0.
  const bool is_whole = tile.is_whole(first_key);
  const int tokens = min(kPageTokens, tile.end() - first_key);
  for (int token = 0; token < tokens; ++token) {
    float value[kDims];
#pragma unroll
    for (int i = 0; i < kDims; ++i) {
      const int d = lane + 32 * i;
      value[i] = d < tile.dim ? dev::half_to_float(values[token * tile.dim + d]) : 0.0F;
    }
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      if (r >= tile.rows || !(is_whole || tile.is_seen(r, first_key + token))) continue;
#pragma unroll
      for (int i = 0; i < kDims; ++i) partial.out[r][i] += weights[r * 32 + token] * value[i];
    }
  }
}

// The warp's pages of a split.
template <int kDims>
DEVICE Partial<kDims> attend_split(const AttentionArguments& args, const Tile& tile,
                                   const Shared& shared, int split) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float* weights = shared.weights + warp * kTileRows * 32;
  const int first_seen = tile.seen(0).begin / kPageTokens;
  const int pages = (tile.end() + kPageTokens - 1) / kPageTokens;
  const int end = min((split + 1) * kSplitPages, pages);
  Partial<kDims> partial;
  for (int page = split * kSplitPages + warp; page < end; page += kWarps) {
    if (page < first_seen) continue;  // before every row's window
    const int block = args.tables[tile.at.table + page];
    add_page(tile, shared, weights, dev::page_of(args.pages, block, tile.kv_head),
             page * kPageTokens, partial);
  }
  return partial;
}

template <int kDims>
DEVICE void publish(const Tile& tile, const Shared& shared, const Partial<kDims>& partial) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    if (r >= tile.rows) continue;
    const int row = warp * kTileRows + r;
    if (lane == 0) {
      shared.max[row] = partial.max[r];
      shared.sum[row] = partial.sum[r];
    }
#pragma unroll
    for (int i = 0; i < kDims; ++i) {
      if (lane + 32 * i < tile.dim) shared.out[row * tile.dim + lane + 32 * i] = partial.out[r][i];
    }
  }
}

struct Folded {
  float max, sum, out;
};

// The warps' partials of one row, and of one dimension of its output.
DEVICE Folded fold_warps(const Tile& tile, const Shared& shared, int row, int d) {
  Folded all{-INFINITY, 0, 0};
  for (int warp = 0; warp < kWarps; ++warp) {
    const int at = warp * kTileRows + row;
    const float largest = fmaxf(all.max, shared.max[at]);
    const float old_factor = decay(all.max, largest);
    const float factor = decay(shared.max[at], largest);
    all.sum = all.sum * old_factor + shared.sum[at] * factor;
    all.out = all.out * old_factor + shared.out[at * tile.dim + d] * factor;
    all.max = largest;
  }
  return all;
}

DEVICE Folded fold(const Folded& a, const Folded& b) {
  const float largest = fmaxf(a.max, b.max);
  const float a_factor = decay(a.max, largest);
  const float b_factor = decay(b.max, largest);
  return {largest, a.sum * a_factor + b.sum * b_factor, a.out * a_factor + b.out * b_factor};
}

DEVICE void write_partial(const AttentionArguments& args, const Tile& tile, const Shared& shared,
                          int split) {
  for (int i = static_cast<int>(threadIdx.x); i < tile.rows * tile.dim; i += kThreads) {
    const int row = i / tile.dim;
    const int d = i % tile.dim;
    const Folded of = fold_warps(tile, shared, row, d);
    const std::int64_t token = tile.at.row + tile.token_of(row);
    const std::int64_t at = (token * args.heads + tile.head_of(row)) * args.splits + split;
    args.partial_out[at * tile.dim + d] = of.out;
    if (d == 0) {
      args.partial_max[at] = of.max;
      args.partial_sum[at] = of.sum;
    }
  }
}

// Folds the split that the warps have published into what there is; `turn` alternates.
DEVICE void fold_split(const Tile& tile, const Shared& shared, int turn) {
  const int before = turn * kTileRows;
  const int after = kTileRows - before;
  for (int i = static_cast<int>(threadIdx.x); i < tile.rows * tile.dim; i += kThreads) {
    const int row = i / tile.dim;
    const int d = i % tile.dim;
    const Folded all =
        fold({shared.whole_max[before + row], shared.whole_sum[before + row], shared.whole[i]},
             fold_warps(tile, shared, row, d));
    shared.whole[i] = all.out;
    if (d == 0) {
      shared.whole_max[after + row] = all.max;
      shared.whole_sum[after + row] = all.sum;
    }
  }
}

template <int kDims>
DEVICE void attend_all(const AttentionArguments& args, const Tile& tile, const Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < tile.rows * tile.dim; i += kThreads) shared.whole[i] = 0;
  if (thread < kTileRows) {
    shared.whole_max[thread] = -INFINITY;
    shared.whole_sum[thread] = 0;
  }
  __syncthreads();  // queries too
  constexpr int kSplitTokens = kSplitPages * kPageTokens;
  const int splits = (tile.end() + kSplitTokens - 1) / kSplitTokens;
  int turn = 0;
  for (int split = tile.seen(0).begin / kSplitTokens; split < splits; ++split) {
    publish(tile, shared, attend_split<kDims>(args, tile, shared, split));
    __syncthreads();
    fold_split(tile, shared, turn);
    turn = 1 - turn;
    __syncthreads();
  }
  for (int i = thread; i < tile.rows * tile.dim; i += kThreads) {
    const int row = i / tile.dim;
    float* out = args.out + (tile.at.row + tile.token_of(row)) * args.out_stride +
                 static_cast<std::int64_t>(tile.head_of(row)) * tile.dim;
    out[i % tile.dim] = shared.whole[i] * (1.0F / shared.whole_sum[turn * kTileRows + row]);
  }
}

template <int kDims>
DEVICE void attention(const AttentionArguments& args) {
  DYNAMIC_SHARED(raw);
  const Tile tile = make_tile(args);
  const Shared shared(raw, tile.dim);
  const int split = static_cast<int>(blockIdx.z);
  const bool is_split = args.partial_out != nullptr;
  if (is_split && split * kSplitPages * kPageTokens >= tile.end()) return;  // the whole block
  load_queries(args, tile, shared);
  if (!is_split) {
    attend_all<kDims>(args, tile, shared);
    return;
  }
  __syncthreads();
  publish(tile, shared, attend_split<kDims>(args, tile, shared, split));
  __syncthreads();
  write_partial(args, tile, shared, split);
}

}  // namespace

KERNEL(attention_64, AttentionArguments, 128) { attention<2>(args); }
KERNEL(attention_128, AttentionArguments, 128) { attention<4>(args); }
KERNEL(attention_256, AttentionArguments, 128) { attention<8>(args); }

// grid (heads, tokens): folds the splits of a row in order; a thread takes every blockDim'th
// dimension.
KERNEL(attention_merge, MergeArguments, 128) {
  const std::int64_t token = blockIdx.y;
  const std::int64_t at = (token * args.heads + blockIdx.x) * args.splits;
  const int splits = args.positions[token] / (kSplitPages * kPageTokens) + 1;
  for (int d = static_cast<int>(threadIdx.x); d < args.head_dim;
       d += static_cast<int>(blockDim.x)) {
    Folded all{-INFINITY, 0, 0};
    for (int split = 0; split < splits; ++split) {
      all = fold(all, {args.partial_max[at + split], args.partial_sum[at + split],
                       args.partial_out[(at + split) * args.head_dim + d]});
    }
    args.out[token * args.out_stride + static_cast<std::int64_t>(blockIdx.x) * args.head_dim + d] =
        all.out * (1.0F / all.sum);
  }
}

}  // namespace plimsoll::cuda
