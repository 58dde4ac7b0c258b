// LoadProgress: how much of a rank's weights is in memory.
#pragma once

#include "shared/base/units.h"

namespace plimsoll {

struct LoadProgress {
  Bytes done = 0;  // of packed bytes
  Bytes total = 0;
};

}  // namespace plimsoll
