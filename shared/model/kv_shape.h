// KvShape: what a token leaves in the KV cache of a rank, by kind of layer.
#pragma once

#include <vector>

#include "shared/base/units.h"
#include "shared/model/kv_type.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"

namespace plimsoll {

// Layers that keep the same.
struct KvLayers {
  std::int64_t layers = 0;
  std::int64_t rows = 0;     // of this rank, a token: 2 (key and value) x KV heads; 1 for a latent
  std::int64_t columns = 0;  // of one row: head_dim; kv_rank + rope_dim
  Tokens window = 0;         // tokens that are kept; 0: all

  Bytes token_bytes(KvType type) const { return layers * rows * kv_row_bytes(type, columns); }
};

// Layers that keep everything first, then those with a window; without empty entries.
std::vector<KvLayers> kv_layers(const ModelSpec& model, const RankShard& shard);

// Of a token that every layer keeps.
Bytes kv_token_bytes(const ModelSpec& model, const RankShard& shard, KvType type);
// Of one sequence of that many tokens: layers with a window keep no more than it.
Bytes kv_sequence_bytes(const ModelSpec& model, const RankShard& shard, KvType type, Tokens tokens);
// How often the replica's ranks hold the cache together: 8 for a latent at tp 8, 2 for 4 KV heads
// at tp 8, 1 where each KV head is on one rank.
double kv_copies(const ModelSpec& model, const ShardPlan& shards);

}  // namespace plimsoll
