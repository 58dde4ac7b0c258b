#include "shared/model/kv_shape.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

struct KvTypeRow {
  KvType type;
  const char* name;
  Bytes element_bytes;
  Bytes row_bytes;  // beside the elements: scales
};

constexpr std::array kTypes = {
    KvTypeRow{KvType::f16, "f16", 2, 0},
    KvTypeRow{KvType::bf16, "bf16", 2, 0},
    KvTypeRow{KvType::fp8, "fp8", 1, 0},
    KvTypeRow{KvType::int8, "int8", 1, 4},
};

const KvTypeRow& row_of(KvType type) { return *std::ranges::find(kTypes, type, &KvTypeRow::type); }

}  // namespace

const char* kv_type_name(KvType type) { return row_of(type).name; }

std::optional<KvType> kv_type_from_name(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &KvTypeRow::name);
  return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

Bytes kv_row_bytes(KvType type, std::int64_t elements) {
  const KvTypeRow& row = row_of(type);
  return elements * row.element_bytes + row.row_bytes;
}

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
