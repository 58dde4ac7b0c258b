// PackedRank: the bytes of rank_weights() by groups of weights, for plans that try many layouts.
#pragma once

#include "shared/base/units.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"

namespace plimsoll {

// As rank_weights(spec, shard).bytes(), without a name and a slice for each weight: microseconds
// where that takes milliseconds. REQUIRES: a GGUF file's model that the graph can run.
Bytes packed_rank_bytes(const ModelSpec& spec, const RankShard& shard);

}  // namespace plimsoll
