#include "shared/model/packed_rank.h"

#include <algorithm>
#include <string_view>

namespace plimsoll {
namespace {

DType dtype_named(std::string_view name) {
  const auto types = all_dtypes();
  const auto found = std::ranges::find(types, name, &DTypeInfo::name);
  return found == types.end() ? DType::f32 : found->dtype;
}

// Which part of a matrix a rank holds; all of it where neither is said.
struct Part {
  std::string_view name;
  Range RankShard::*rows = nullptr;
  Range RankShard::*cols = nullptr;
  bool by_heads = false;  // the range counts heads
};
constexpr Part kParts[] = {
    {"blk.*.attn_q.weight", &RankShard::heads, nullptr, true},
    {"blk.*.attn_k.weight", &RankShard::kv_heads, nullptr, true},
    {"blk.*.attn_v.weight", &RankShard::kv_heads, nullptr, true},
    {"blk.*.attn_output.weight", nullptr, &RankShard::heads, true},
    {"blk.*.ffn_gate.weight", &RankShard::ffn},
    {"blk.*.ffn_up.weight", &RankShard::ffn},
    {"blk.*.ffn_down.weight", nullptr, &RankShard::ffn},
    {"output.weight", &RankShard::vocab},
    {"token_embd.weight"},
};

Bytes matrix_bytes(const ModelSpec& spec, const RankShard& shard, const Part& part,
                   const WeightGroup& group) {
  const std::int64_t unit = part.by_heads ? spec.head_dim : 1;
  const std::int64_t rows =
      part.rows == nullptr ? group.shape[0] : (shard.*part.rows).size() * unit;
  const std::int64_t cols =
      part.cols == nullptr ? group.shape[1] : (shard.*part.cols).size() * unit;
  return round_up(packed_bytes(dtype_named(group.type), rows, cols), kWeightAlignment);
}

// Norms are whole; the biases of queries, keys and values lie behind one another.
Bytes vector_bytes(const ModelSpec& spec, const RankShard& shard, const WeightGroup& group) {
  const std::string_view name = group.name;
  if (name == "blk.*.attn_k.bias" || name == "blk.*.attn_v.bias") return 0;
  std::int64_t elements = group.shape[0];
  if (name == "blk.*.attn_q.bias") {
    elements = (shard.heads.size() + 2 * shard.kv_heads.size()) * spec.head_dim;
  }
  return round_up(elements * static_cast<Bytes>(sizeof(float)), kWeightAlignment);
}

}  // namespace

Bytes packed_rank_bytes(const ModelSpec& spec, const RankShard& shard) {
  Bytes sum = 0;
  for (const WeightGroup& group : spec.groups) {
    const auto* part = std::ranges::find(kParts, group.name, &Part::name);
    const bool is_matrix = part != std::end(kParts);
    if (is_matrix && group.name == "output.weight" && spec.tied_head) continue;
    sum += group.count *
           (is_matrix ? matrix_bytes(spec, shard, *part, group) : vector_bytes(spec, shard, group));
  }
  return sum;
}

}  // namespace plimsoll
