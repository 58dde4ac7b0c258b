// ShardPlan: which slice of each weight a rank holds.
//
// Heads are split by whole KV groups, unevenly where they do not divide (9 heads / 3 KV heads over
// 2 ranks: 6 heads / 2 KV heads and 3 / 1). With more ranks than KV heads each rank holds one KV
// head, replicated over neighbours, and the query heads of that group are divided among them. So on
// every rank the heads are a multiple of the KV heads. Latent attention is the case of one KV head:
// the latent is on every rank, the heads are divided. The feed-forward is split in units of 32
// columns, of dense layers up to 256 where that leaves 12 units (256 where a K-quant must be cut on
// its blocks, 128 for FP8 with block scales), and the largest of its kinds (dense, of each expert,
// shared) balances what attention left uneven; experts that are
// divided whole do not. The vocabulary is split in units of kPackedRows
// rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

struct RankShard {
  Range heads;     // query heads
  Range kv_heads;  // KV heads that those queries read; may overlap a neighbour's when replicated
  Range ffn;       // rows of gate and up, columns of down; of dense layers
  Range vocab;     // rows of the head whose logits this rank computes
  // Empty where the model has no such part.
  Range expert_ffn = {};    // as ffn, of every routed expert
  Range shared_ffn = {};    // as ffn, of the shared experts
  Range vision_heads = {};  // of the vision tower, where it is sharded
  Range vision_ffn = {};
  std::int64_t experts = 0;  // routed experts of a layer, whole or in columns

  bool operator==(const RankShard&) const = default;
};

struct ShardPlan {
  std::vector<RankShard> ranks;
};

// REQUIRES: spec.groups are those of its weights. Errors: tp below 1 or above the number of heads;
// a split that would cut a quantised block.
Result<ShardPlan> plan_shards(const ModelSpec& spec, std::int64_t tp);

// As servers in general do: feed-forwards that divide over the ranks are divided evenly, in columns
// as fine as the format allows. Ranks of all replicas, `ep` at a time, divide the routed experts:
// whole ones, and each over tp / ep ranks where that is more than one; shared experts that cannot
// be cut for so many ranks are then whole on each. REQUIRES: ep divides tp, or tp divides it.
// Errors: as above.
Result<ShardPlan> plan_device_shards(const ModelSpec& spec, std::int64_t tp, std::int64_t ep);

// One weight of a rank as the loader cuts it: some rows, and of each some columns.
struct WeightSlice {
  const WeightInfo* weight = nullptr;
  Range rows;
  Range cols;
};

// Packed parts and vectors each start on a cache line, which is also what the kernels ask for.
constexpr Bytes kWeightAlignment = 64;

// A packed matrix of the graph and the slices that it is made of, in order.
struct MatrixPlan {
  // "embedding", "blk.3.qkv", "blk.3.attn_output", "blk.3.gate_up", "blk.3.ffn_down", "head"
  std::string name;
  std::vector<WeightSlice> parts;  // q, k, v · gate, up · one
  // Of a matrix whose columns the ranks share: at whose multiples alone they can be cut, whatever
  // tp is. Sums within such a segment never depend on tp (kernels/backend.h). 0 for the others.
  std::int64_t segment_cols = 0;
  Bytes packed_bytes = 0;  // of all parts, each rounded up to kWeightAlignment
};

struct VectorSlice {
  const WeightInfo* weight = nullptr;
  Range range;
};

// A vector as f32: norms and rope_freqs, whole on every rank, under the file's name
// ("blk.3.attn_norm.weight"), or "blk.3.qkv.bias", which is as long as the rank's qkv has rows.
struct VectorPlan {
  std::string name;
  std::vector<VectorSlice> parts;  // one; of the bias q, k, v
  Bytes bytes = 0;                 // rounded up to kWeightAlignment
};

struct RankWeights {
  // In the order in which the graph reads them. A tied head appears once, first, as "head",
  // replicated whole on every rank, since the embedding needs all rows; its logits use
  // RankShard::vocab. Else "embedding" is whole, and "head" has the rows of RankShard::vocab alone.
  std::vector<MatrixPlan> matrices;
  std::vector<VectorPlan> vectors;
  Bytes bytes() const;  // exact: what an arena needs that holds them all, one after the other
};

// Bytes of one packed part, not rounded: the length of the destination of Backend::pack.
Bytes slice_bytes(const WeightSlice& slice);

// REQUIRES: spec outlives the result (slices point into its index).
RankWeights rank_weights(const ModelSpec& spec, const RankShard& shard);

}  // namespace plimsoll
