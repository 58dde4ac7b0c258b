#include "shared/model/weight_share.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

constexpr Bytes kBf16 = 2;

Range range_of(const RankShard& shard, CutBy by) {
  switch (by) {
    case CutBy::heads:
      return shard.heads;
    case CutBy::kv_heads:
      return shard.kv_heads;
    case CutBy::ffn:
      return shard.ffn;
    case CutBy::expert_ffn:
      return shard.expert_ffn;
    case CutBy::shared_ffn:
      return shard.shared_ffn;
    case CutBy::vocab:
      return shard.vocab;
    case CutBy::vision_heads:
      return shard.vision_heads;
    case CutBy::vision_ffn:
      return shard.vision_ffn;
    case CutBy::nothing:
      break;
  }
  return {};
}

// Of one weight: the units that the range touches.
Bytes cut_bytes(const WeightGroup& group, Range range) {
  const Cut& cut = group.cut;
  const std::int64_t units = ceil_div(cut.count * cut.per, cut.unit);
  const std::int64_t held =
      ceil_div(range.end * cut.per, cut.unit) - range.begin * cut.per / cut.unit;
  return group.bytes / units * held + ceil_div(group.bytes % units * held, units);
}

bool is_held(WeightPart part, const WeightPlacement& placement) {
  if (part == WeightPart::file_only) return false;
  return part != WeightPart::mtp || placement.mtp_loaded;
}

bool is_whole(const WeightGroup& group, const WeightPlacement& placement) {
  if (group.cut.by == CutBy::nothing) return true;
  if (group.part == WeightPart::vision) return !placement.vision_sharded;
  return group.part == WeightPart::embedding && !placement.embedding_sharded;
}

// Of experts that the ranks divide whole, those that this one has.
bool divides_experts(const ModelSpec& model, const RankShard& shard, const WeightGroup& group) {
  return group.part == WeightPart::experts && shard.experts < model.experts.count;
}
Bytes held_bytes(const ModelSpec& model, const RankShard& shard, const WeightGroup& group,
                 Bytes of_all) {
  if (!divides_experts(model, shard, group)) return of_all;
  return ceil_div(of_all * shard.experts, model.experts.count);
}

// Whether another rank holds the same range: KV heads with more ranks than heads.
bool is_shared(const ShardPlan& shards, std::size_t rank, CutBy by) {
  if (shards.ranks.size() == 1) return false;
  const std::size_t other = rank == 0 ? rank + 1 : rank - 1;
  const std::size_t next = std::min(rank + 1, shards.ranks.size() - 1);
  const Range own = range_of(shards.ranks[rank], by);
  return own == range_of(shards.ranks[other], by) ||
         (next != rank && own == range_of(shards.ranks[next], by));
}

}  // namespace

Bytes RankShare::sharded() const {
  Bytes sum = 0;
  for (const PartShare& share : parts) sum += share.sharded;
  return sum;
}

Bytes RankShare::replicated() const {
  Bytes sum = 0;
  for (const PartShare& share : parts) sum += share.replicated;
  return sum;
}

Bytes RankShare::part(WeightPart part) const {
  const auto found = std::ranges::find(parts, part, &PartShare::part);
  return found == parts.end() ? 0 : found->sharded + found->replicated;
}

RankShare rank_share(const ModelSpec& model, const ShardPlan& shards, std::size_t rank,
                     const WeightPlacement& placement) {
  const RankShard& shard = shards.ranks[rank];
  std::array<PartShare, static_cast<std::size_t>(WeightPart::file_only)> shares;
  for (const WeightGroup& group : model.groups) {
    if (!is_held(group.part, placement)) continue;
    PartShare& share = shares[static_cast<std::size_t>(group.part)];
    share.part = group.part;
    const bool is_alone = shards.ranks.size() == 1 || divides_experts(model, shard, group);
    if (is_whole(group, placement)) {
      const Bytes bytes = held_bytes(model, shard, group, group.bytes_of_all());
      (is_alone ? share.sharded : share.replicated) += bytes;
      continue;
    }
    const Bytes bytes = held_bytes(model, shard, group,
                                   group.count * cut_bytes(group, range_of(shard, group.cut.by)));
    const bool is_replicated = !is_alone && is_shared(shards, rank, group.cut.by);
    (is_replicated ? share.replicated : share.sharded) += bytes;
  }
  RankShare result;
  for (const PartShare& share : shares) {
    if (share.sharded + share.replicated > 0) result.parts.push_back(share);
  }
  if (placement.absorbed_copies && model.latent && model.latent->has_kv_b) {
    const LatentAttention& latent = *model.latent;
    result.absorbed = model.layers * shard.heads.size() * (latent.nope_dim + latent.value_dim) *
                      latent.kv_rank * kBf16;
  }
  return result;
}

}  // namespace plimsoll
