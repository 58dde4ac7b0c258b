#include "shared/model/weight_group.h"

namespace plimsoll {

const char* part_name(WeightPart part) {
  switch (part) {
    case WeightPart::embedding:
      return "embedding";
    case WeightPart::head:
      return "head";
    case WeightPart::norms:
      return "norms";
    case WeightPart::attention:
      return "attention";
    case WeightPart::router:
      return "router";
    case WeightPart::dense_ffn:
      return "dense feed-forward";
    case WeightPart::experts:
      return "experts";
    case WeightPart::shared_experts:
      return "shared experts";
    case WeightPart::vision:
      return "vision tower";
    case WeightPart::projector:
      return "vision projector";
    case WeightPart::mtp:
      return "drafting layers";
    case WeightPart::other:
      return "other";
    case WeightPart::file_only:
      return "notes in the file";
  }
  return "other";
}

}  // namespace plimsoll
