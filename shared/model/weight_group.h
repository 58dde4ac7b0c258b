// WeightGroup: weights of a model that are alike in all but their number, and how ranks divide
// them.
//
// A model of 70,000 tensors has some fifty groups, so that a plan costs microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/units.h"

namespace plimsoll {

enum class WeightPart {
  embedding,
  head,
  norms,
  attention,
  router,
  dense_ffn,
  experts,
  shared_experts,
  vision,     // the tower of a model that sees
  projector,  // from the tower to the text model
  mtp,        // layers that draft further tokens (DeepSeek's nextn)
  other,      // not known to us: counted, and replicated on every rank
  file_only,  // notes in a checkpoint (weight_shape) that no rank holds
};
const char* part_name(WeightPart part);  // "shared experts"

// The range of RankShard that a rank's share of a weight follows.
enum class CutBy {
  nothing,  // replicated: every rank holds it whole
  heads,
  kv_heads,
  ffn,
  expert_ffn,  // of every routed expert
  shared_ffn,
  vocab,
  vision_heads,
  vision_ffn,
};

struct Cut {
  CutBy by = CutBy::nothing;
  // Columns (inputs) are divided: never within a unit, since a block cannot be cut. Rows may be cut
  // anywhere: of what belongs to several rows (a block's scale) both ranks then hold a copy.
  bool columns = false;
  std::int64_t per = 1;    // elements of the divided dimension for one of `by`: 128 for a head
  std::int64_t count = 1;  // of `by` in all: 64 heads
  std::int64_t unit = 1;   // elements stored together: 32 (Q4_1), 8 (INT4 in a word), 128 (a scale)

  bool operator==(const Cut&) const = default;
};

struct WeightGroup {
  std::string name;  // of one, numbers as "*": "model.layers.*.mlp.experts.*.up_proj.weight_scale"
  std::int64_t count = 0;           // of weights
  std::string type;                 // as stored: "BF16", "I32", "Q4_1"
  std::vector<std::int64_t> shape;  // of one, as stored, outermost first
  Bytes bytes = 0;                  // of one
  WeightPart part = WeightPart::other;
  Cut cut;

  Bytes bytes_of_all() const { return count * bytes; }
};

}  // namespace plimsoll
