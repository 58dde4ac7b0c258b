// WeightShare: the bytes of weights that a rank holds, as stored, with replication made visible.
//
// It is the rule of servers that keep weights as the checkpoint has them (GPUs). Weights packed for
// the CPU kernels are counted exactly by rank_weights() in shard_plan.h.
#pragma once

#include <vector>

#include "shared/base/units.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"

namespace plimsoll {

struct WeightPlacement {
  bool vision_sharded =
      false;                // else every rank holds the whole tower; the projector always is whole
  bool mtp_loaded = false;  // else drafting layers stay in the file
  bool embedding_sharded = true;  // by the vocabulary, like the head; else whole on every rank
  bool absorbed_copies = true;    // of kv_b, split and transposed as BF16, beside the stored matrix
};

struct PartShare {
  WeightPart part = WeightPart::other;
  Bytes sharded = 0;
  Bytes replicated = 0;  // also on another rank
};

struct RankShare {
  std::vector<PartShare> parts;  // those that this rank holds, in the order of WeightPart
  Bytes absorbed = 0;

  Bytes sharded() const;
  Bytes replicated() const;
  Bytes total() const { return sharded() + replicated() + absorbed; }
  Bytes part(WeightPart part) const;  // sharded and replicated
};

RankShare rank_share(const ModelSpec& model, const ShardPlan& shards, std::size_t rank,
                     const WeightPlacement& placement);

}  // namespace plimsoll
