// WeightLoader: this rank's slices from the model file into packed weights in the arena.
//
// Reads only what the rank needs, in the order of rank_weights(), and drops the file's pages from
// this process as it goes, so that the process never holds the weights twice. Weights that are in
// the arena already, packed by an earlier rank, are only found their places.
#pragma once

#include <functional>

#include "kernels/backend.h"
#include "shared/base/result.h"
#include "shared/model/gguf.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"
#include "worker/arena.h"
#include "worker/graph/weights.h"
#include "worker/load/load_progress.h"

namespace plimsoll {

enum class ArenaWeights { to_pack, packed };

// REQUIRES: `spec` was read from `file`; packed ones are of the same file and shard. Errors: the
// arena's (internal), the backend's; a weight that the graph has no place for (internal).
Result<ModelWeights> load_weights(const GgufFile& file, const ModelSpec& spec,
                                  const RankShard& shard, Backend& backend, Arena& arena,
                                  ArenaWeights state,
                                  const std::function<void(const LoadProgress&)>& progress);

}  // namespace plimsoll
