#include "shared/model/kv_shape.h"

#include <algorithm>

namespace plimsoll {
std::vector<KvLayers> kv_layers(const ModelSpec& model, const RankShard& shard) {
  KvLayers each;
  if (model.latent) {
    each.rows = 1;
    each.columns = model.latent->kv_rank + model.latent->rope_dim;
  } else {
    each.rows = 2 * shard.kv_heads.size();
    each.columns = model.head_dim;
  }
  const std::int64_t full = model.window == 0 ? model.layers : std::ssize(model.full_layers);
  std::vector<KvLayers> kinds;
  for (const bool has_window : {false, true}) {
    KvLayers kind = each;
    kind.layers = has_window ? model.layers - full : full;
    kind.window = has_window ? model.window : 0;
    if (kind.layers > 0) kinds.push_back(kind);
  }
  return kinds;
}

Bytes kv_token_bytes(const ModelSpec& model, const RankShard& shard, KvType type) {
  Bytes sum = 0;
  for (const KvLayers& kind : kv_layers(model, shard)) sum += kind.token_bytes(type);
  return sum;
}

Bytes kv_sequence_bytes(const ModelSpec& model, const RankShard& shard, KvType type,
                        Tokens tokens) {
  Bytes sum = 0;
  for (const KvLayers& kind : kv_layers(model, shard)) {
    sum += kind.token_bytes(type) * (kind.window == 0 ? tokens : std::min(tokens, kind.window));
  }
  return sum;
}

double kv_copies(const ModelSpec& model, const ShardPlan& shards) {
  std::int64_t held = 0;
  for (const RankShard& shard : shards.ranks) held += shard.kv_heads.size();
  return static_cast<double>(held) / static_cast<double>(model.kv_heads);
}

}  // namespace plimsoll
