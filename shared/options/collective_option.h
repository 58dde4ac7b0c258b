// CollectiveOption: what --collective and --disable-custom-all-reduce come to on ranks that have
// CUDA kernels.
#pragma once

#include "shared/options/options.h"

namespace plimsoll {

inline bool adds_up_by_nccl(const Options& options) {
  if (options.collective == "auto") return options.disable_custom_all_reduce == "on";
  return options.collective == "nccl";
}

}  // namespace plimsoll
