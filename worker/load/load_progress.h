// LoadProgress: how much of a rank's weights is in memory, or that it waits for its peers with all.
#pragma once

#include "shared/base/units.h"

namespace plimsoll {

struct LoadProgress {
  Bytes done = 0;  // of packed bytes
  Bytes total = 0;
  bool waits_for_peers = false;
};

}  // namespace plimsoll
