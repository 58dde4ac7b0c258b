#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/cpu/attention_plan.h"
#include "shared/base/check.h"
#include "shared/model/head_limits.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kAlignFloats = 16;  // 64 bytes

// Floats of each buffer of a thread, and of a partial.
std::int64_t tile_floats(std::int64_t head_dim) {
  return kTileRows * (head_dim + kKvBlockTokens + 1 + kSumLanes);
}
std::int64_t partial_floats(std::int64_t head_dim) { return kTileRows * (head_dim + 2); }

std::int64_t splits_of(std::int64_t context) { return ceil_div(context, kSplitTokens); }

Bytes bounds_bytes(int threads) {
  return round_up(static_cast<Bytes>(sizeof(AttentionBound)) * (threads + 1), 64);
}

// head *= weight / sqrt(mean(head²) + eps); sums in f32, in one order.
void norm_head(float* head, const Norm& norm, std::int64_t dim) {
  constexpr std::int64_t kLanes = 8;
  float lanes[kLanes] = {};
  for (std::int64_t d = 0; d < dim; ++d) lanes[d % kLanes] += head[d] * head[d];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  const float factor = 1 / std::sqrt(sum / static_cast<float>(dim) + norm.eps);
  for (std::int64_t d = 0; d < dim; ++d) head[d] *= factor * norm.weight[d];
}

// One head as int8: numbers times the scale that is returned. A head that holds an infinity or a
// NaN gets a NaN as scale, so that its token shows it.
float quantise_head(const float* head, std::int8_t* numbers, std::int64_t dim) {
  constexpr float kSmallestMax = 1e-30F;  // below it the inverse would overflow
  constexpr float kRounding = 0x1.8p23F;  // added and taken away: to nearest, to even
  float most = 0;
  bool finite = true;
  for (std::int64_t d = 0; d < dim; ++d) {
    most = std::max(most, std::fabs(head[d]));
    finite = finite && std::isfinite(head[d]);
  }
  if (!finite || most < kSmallestMax) {
    std::fill_n(numbers, dim, static_cast<std::int8_t>(finite ? 0 : 1));
    return finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse = 127.0F / most;
  for (std::int64_t d = 0; d < dim; ++d) {
    numbers[d] = static_cast<std::int8_t>((head[d] * inverse + kRounding) - kRounding);
  }
  return most / 127.0F;
}

// What a thread works in. The first partial holds the tile at hand; when the thread's share ends
// inside a tile that it began, it stays there for the merge. The second is the current split's. The
// others are the splits of a tile that an earlier thread began.
class ThreadScratch {
 public:
  ThreadScratch(std::span<std::byte> scratch, int threads, int thread, std::int64_t head_dim)
      : head_dim_(head_dim) {
    const std::int64_t floats = (static_cast<Bytes>(scratch.size()) - bounds_bytes(threads)) /
                                static_cast<Bytes>(sizeof(float)) / threads / kAlignFloats *
                                kAlignFloats;
    base_ = reinterpret_cast<float*>(scratch.data() + bounds_bytes(threads)) + thread * floats;
    slots_ = (floats - tile_floats(head_dim)) / partial_floats(head_dim) - 2;
  }

  AttentionTile tile() const {
    AttentionTile tile;
    tile.head_dim = head_dim_;
    tile.query = base_;
    tile.scores = tile.query + kTileRows * head_dim_;
    tile.decay = tile.scores + kTileRows * kKvBlockTokens;
    tile.lanes = tile.decay + kTileRows;
    return tile;
  }
  AttentionPartial whole() const { return partial(0); }
  AttentionPartial current() const { return partial(1); }
  AttentionPartial later_split(std::int64_t index) const {
    CHECK(index < slots_);
    return partial(2 + index);
  }

 private:
  AttentionPartial partial(std::int64_t index) const {
    float* base = base_ + tile_floats(head_dim_) + index * partial_floats(head_dim_);
    return {base + kTileRows * head_dim_, base + kTileRows * (head_dim_ + 1), base};
  }

  std::int64_t head_dim_;
  float* base_;
  std::int64_t slots_;
};

class AttentionRun {
 public:
  AttentionRun(const AttentionCall& call, const AttentionKernel& kernel, ThreadTeam& team,
               std::span<std::byte> scratch)
      : call_(call),
        kernel_(kernel),
        team_(team),
        scratch_(scratch),
        tiles_(call.sequences, {.count = call.heads, .kv_count = call.cache->kv_heads},
               call.window),
        bounds_(reinterpret_cast<AttentionBound*>(scratch.data()),
                static_cast<std::size_t>(team.size()) + 1),
        dim_(call.cache->head_dim) {}

  void run() {
    tiles_.share(bounds_);
    team_.run([this](int thread) {
      store(thread);
      team_.barrier();
      attend(thread);
      team_.barrier();
      merge(thread);
    });
  }

 private:
  // Of a block: K [head_dim, kKvBlockTokens], then V [kKvBlockTokens, head_dim], then scales.
  std::byte* page(const SequenceRows& rows, std::int64_t block, std::int64_t kv_head) const {
    const KvCache& cache = *call_.cache;
    return cache.data + rows.blocks[static_cast<std::size_t>(block)] * cache.block_bytes() +
           (call_.layer * cache.kv_heads + kv_head) * cache.head_bytes();
  }
  bool is_int8() const { return call_.cache->type == KvType::int8; }
  Bytes page_bytes() const { return dim_ * kKvBlockTokens * (is_int8() ? 1 : 2); }
  KvPage page_view(const std::byte* page) const {
    const auto* scales = reinterpret_cast<const float*>(page + 2 * page_bytes());
    return {.keys = page,
            .values = page + page_bytes(),
            .key_scales = is_int8() ? scales : nullptr,
            .value_scales = is_int8() ? scales + kKvBlockTokens : nullptr};
  }

  const SequenceRows& sequence(std::int64_t index) const {
    return call_.sequences[static_cast<std::size_t>(index)];
  }
  const AttentionBound& bound(int index) const { return bounds_[static_cast<std::size_t>(index)]; }
  ThreadScratch scratch(int thread) const { return {scratch_, team_.size(), thread, dim_}; }

  // Bias, norm and rotation of head `index` of a row of qkv, in place.
  void prepare(float* head, std::int64_t index, const Norm& norm, std::int64_t position) const {
    add_bias(head, index);
    if (norm.weight != nullptr) norm_head(head, norm, dim_);
    rotate(head, position);
  }
  void add_bias(float* head, std::int64_t index) const {
    if (call_.bias == nullptr) return;
    for (std::int64_t d = 0; d < dim_; ++d) head[d] += call_.bias[index * dim_ + d];
  }
  void rotate(float* head, std::int64_t position) const {
    const RopeTable& rope = call_.rope;
    if (rope.half_dim == 0) return;
    kernel_.rotate(head, rope.cos + position * rope.half_dim, rope.sin + position * rope.half_dim,
                   rope.half_dim, rope.interleaved);
  }

  void store(int thread) const;
  void store_token(const SequenceRows& rows, std::int64_t token, std::int64_t kv_head) const;
  void attend(int thread) const;
  void attend_tile(const ThreadScratch& buffers, const AttentionTileRef& ref,
                   std::int64_t split_begin, std::int64_t split_end) const;
  void load_queries(const AttentionTile& tile, const AttentionTileRef& ref) const;
  void attend_split(AttentionTile tile, const AttentionTileRef& ref, std::int64_t split,
                    const AttentionPartial& result) const;
  void attend_rows(const AttentionTile& tile, RowRange rows, const KvPage& stored,
                   KeyRange keys) const {
    (is_int8() ? kernel_.attend_int8 : kernel_.attend_f16)(tile, rows, stored, keys);
  }
  void merge(int thread) const;
  RowRange rows_of_split(const AttentionTileRef& ref, std::int64_t split) const;
  KeyRange visible(const AttentionTileRef& ref, std::int64_t token, std::int64_t key) const;
  void write(const AttentionTileRef& ref, const AttentionPartial& result) const;

  const AttentionCall& call_;
  const AttentionKernel& kernel_;
  ThreadTeam& team_;
  std::span<std::byte> scratch_;
  AttentionTiles tiles_;
  std::span<AttentionBound> bounds_;
  std::int64_t dim_;
};

// New keys and values go to the cache by runs of tokens that share a block and a kv head, dealt out
// in turn: two threads never write into one page.
void AttentionRun::store(int thread) const {
  std::int64_t turn = 0;
  for (const SequenceRows& rows : call_.sequences) {
    for (std::int64_t token = 0; token < rows.tokens;) {
      const std::int64_t left = kKvBlockTokens - (rows.position + token) % kKvBlockTokens;
      const std::int64_t end = std::min(rows.tokens, token + left);
      for (std::int64_t head = 0; head < call_.cache->kv_heads; ++head) {
        if (turn++ % team_.size() != thread) continue;
        for (std::int64_t t = token; t < end; ++t) store_token(rows, t, head);
      }
      token = end;
    }
  }
}

void AttentionRun::store_token(const SequenceRows& rows, std::int64_t token,
                               std::int64_t kv_head) const {
  const std::int64_t position = rows.position + token;
  const std::int64_t slot = position % kKvBlockTokens;
  std::byte* keys = page(rows, position / kKvBlockTokens, kv_head);
  std::byte* values = keys + page_bytes();
  const std::int64_t key_index = call_.heads + kv_head;
  const std::int64_t value_index = key_index + call_.cache->kv_heads;
  float* row = call_.qkv.row(rows.row + token);
  prepare(row + key_index * dim_, key_index, call_.k_norm, position);
  add_bias(row + value_index * dim_, value_index);
  if (!is_int8()) {
    kernel_.store_key(row + key_index * dim_, reinterpret_cast<std::uint16_t*>(keys) + slot, dim_);
    kernel_.store_value(row + value_index * dim_,
                        reinterpret_cast<std::uint16_t*>(values) + slot * dim_, dim_);
    return;
  }
  auto* scales = reinterpret_cast<float*>(values + page_bytes());
  std::int8_t numbers[kHeadDimMax];
  scales[slot] = quantise_head(row + key_index * dim_, numbers, dim_);
  auto* column = reinterpret_cast<std::int8_t*>(keys) + slot;
  for (std::int64_t d = 0; d < dim_; ++d) column[d * kKvBlockTokens] = numbers[d];
  scales[kKvBlockTokens + slot] = quantise_head(
      row + value_index * dim_, reinterpret_cast<std::int8_t*>(values) + slot * dim_, dim_);
}

void AttentionRun::attend(int thread) const {
  const AttentionBound& begin = bound(thread);
  const AttentionBound& end = bound(thread + 1);
  const ThreadScratch buffers = scratch(thread);
  AttentionTileRef ref = begin.tile;
  std::int64_t split = begin.split;
  for (; !same_tile(ref, end.tile); ref = tiles_.next(ref), split = 0) {
    attend_tile(buffers, ref, split, ref.splits());
  }
  if (split < end.split) attend_tile(buffers, ref, split, end.split);
}

void AttentionRun::attend_tile(const ThreadScratch& buffers, const AttentionTileRef& ref,
                               std::int64_t split_begin, std::int64_t split_end) const {
  const AttentionTile tile = buffers.tile();
  load_queries(tile, ref);
  for (std::int64_t split = split_begin; split < split_end; ++split) {
    if (split_begin > 0) {
      attend_split(tile, ref, split, buffers.later_split(split - split_begin));
    } else if (split == 0) {
      attend_split(tile, ref, split, buffers.whole());
    } else {
      attend_split(tile, ref, split, buffers.current());
      kernel_.fold(buffers.whole(), buffers.current(), rows_of_split(ref, split), dim_);
    }
  }
  if (split_begin == 0 && split_end == ref.splits()) write(ref, buffers.whole());
}

void AttentionRun::load_queries(const AttentionTile& tile, const AttentionTileRef& ref) const {
  const std::int64_t group = tiles_.group();
  const SequenceRows& rows = sequence(ref.sequence);
  const float factor = call_.scale * std::numbers::log2e_v<float>;
  for (std::int64_t t = 0; t < ref.tokens; ++t) {
    const float* heads = call_.qkv.row(rows.row + ref.token + t) + ref.kv_head * group * dim_;
    float* query = tile.query + t * group * dim_;
    std::copy_n(heads, group * dim_, query);
    for (std::int64_t h = 0; h < group; ++h) {
      prepare(query + h * dim_, ref.kv_head * group + h, call_.q_norm, ref.position + t);
    }
    kernel_.scale(query, factor, query, group * dim_);
  }
}

RowRange AttentionRun::rows_of_split(const AttentionTileRef& ref, std::int64_t split) const {
  const std::int64_t first = ref.first_seeing(split * kSplitTokens);
  const std::int64_t end = ref.end_seeing((split + 1) * kSplitTokens - 1);
  return {first * tiles_.group(), std::max<std::int64_t>(end - first, 0) * tiles_.group()};
}

// Of the block that begins at `key`: what this token of the tile sees.
KeyRange AttentionRun::visible(const AttentionTileRef& ref, std::int64_t token,
                               std::int64_t key) const {
  const std::int64_t end = ref.position + token + 1;
  const std::int64_t begin = call_.window == 0 ? 0 : end - call_.window;
  return {std::max<std::int64_t>(begin - key, 0), std::min(end - key, kKvBlockTokens)};
}

void AttentionRun::attend_split(AttentionTile tile, const AttentionTileRef& ref, std::int64_t split,
                                const AttentionPartial& result) const {
  const std::int64_t group = tiles_.group();
  const RowRange rows = rows_of_split(ref, split);
  // Later splits are folded into the first, whose rows therefore all begin, with nothing.
  const RowRange begun = split == 0 ? RowRange{0, ref.tokens * group} : rows;
  tile.max = result.max;
  tile.out = result.out;
  std::fill_n(tile.max + begun.begin, begun.count, -std::numeric_limits<float>::infinity());
  std::fill_n(tile.lanes + begun.begin * kSumLanes, begun.count * kSumLanes, 0.0F);
  std::fill_n(tile.out + begun.begin * dim_, begun.count * dim_, 0.0F);

  const std::int64_t last = ref.last_position() / kKvBlockTokens;
  const std::int64_t end = std::min((split + 1) * kSplitBlocks, last + 1);
  for (std::int64_t block = split * kSplitBlocks; block < end; ++block) {
    const KvPage stored = page_view(page(sequence(ref.sequence), block, ref.kv_head));
    const std::int64_t key = block * kKvBlockTokens;
    const std::int64_t key_end = key + kKvBlockTokens;
    // Tokens inside the block see its beginning, each its own length; those whose window begins in
    // it see its end; those between see all of it.
    const std::int64_t whole = ref.first_seeing(key_end - 1);
    const std::int64_t whole_end = std::max(ref.end_seeing(key), whole);
    const auto attend_each = [&](std::int64_t begin, std::int64_t stop) {
      for (std::int64_t t = begin; t < stop; ++t) {
        attend_rows(tile, {t * group, group}, stored, visible(ref, t, key));
      }
    };
    const std::int64_t seen_end = ref.end_seeing(key_end - 1);
    attend_each(ref.first_seeing(key), std::min(whole, seen_end));
    if (whole < whole_end) {
      attend_rows(tile, {whole * group, (whole_end - whole) * group}, stored, {});
    }
    attend_each(whole_end, seen_end);
  }
  kernel_.sum_lanes(tile, begun, result.sum);
}

// The thread that began a tile folds in the splits that later threads left, and writes it out.
void AttentionRun::merge(int thread) const {
  const AttentionBound& end = bound(thread + 1);
  const bool began = !same_tile(bound(thread).tile, end.tile) || bound(thread).split == 0;
  const bool unfinished = end.split > 0 && began;
  if (!unfinished) return;
  const AttentionTileRef& ref = end.tile;
  const AttentionPartial whole = scratch(thread).whole();
  for (int other = thread + 1; other < team_.size() && same_tile(bound(other).tile, ref); ++other) {
    const bool to_the_end = !same_tile(bound(other + 1).tile, ref);
    const std::int64_t split_end = to_the_end ? ref.splits() : bound(other + 1).split;
    for (std::int64_t split = bound(other).split; split < split_end; ++split) {
      kernel_.fold(whole, scratch(other).later_split(split - bound(other).split),
                   rows_of_split(ref, split), dim_);
    }
  }
  write(ref, whole);
}

void AttentionRun::write(const AttentionTileRef& ref, const AttentionPartial& result) const {
  const std::int64_t group = tiles_.group();
  for (std::int64_t r = 0; r < ref.tokens * group; ++r) {
    const std::int64_t row = sequence(ref.sequence).row + ref.token + r / group;
    float* out = call_.out.row(row) + (ref.kv_head * group + r % group) * dim_;
    kernel_.scale(result.out + r * dim_, 1.0F / result.sum[r], out, dim_);
  }
}

}  // namespace

const AttentionKernel& attention_kernel(CpuPath path) {
  switch (path) {
    case CpuPath::avx512:
      return kAttentionAvx512;
    case CpuPath::avx2:
      return kAttentionAvx2;
    case CpuPath::scalar:
      break;
  }
  return kAttentionScalar;
}

Bytes attention_scratch_bytes(const BackendLimits& limits, int threads) {
  const std::int64_t floats = tile_floats(limits.head_dim) +
                              (2 + splits_of(limits.context_max)) * partial_floats(limits.head_dim);
  return bounds_bytes(threads) +
         threads * round_up(floats, kAlignFloats) * static_cast<Bytes>(sizeof(float));
}

void run_attention(const AttentionCall& call, const AttentionKernel& kernel, ThreadTeam& team,
                   std::span<std::byte> scratch) {
  CHECK(call.heads / call.cache->kv_heads <= kTileRows);
  CHECK(call.cache->head_dim % 8 == 0 && call.cache->head_dim <= 256);
  AttentionRun(call, kernel, team, scratch).run();
}

}  // namespace plimsoll
