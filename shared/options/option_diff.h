// OptionDiff: what differs between two sets of options, and the strongest action that it needs.
#pragma once

#include <string>
#include <vector>

#include "shared/options/options.h"

namespace plimsoll {

enum class Effect {
  live,     // applied in place
  rolling,  // replicas restart one after another
  full,     // the deployment restarts
  fixed,    // only a new daemon takes it
};
const char* effect_name(Effect effect);

struct OptionChange {
  std::string name;
  std::string before;
  std::string after;
  Effect effect = Effect::live;
};

struct OptionDiff {
  std::vector<OptionChange> changes;  // in table order
  Effect strongest = Effect::live;
};

OptionDiff diff_options(const Options& before, const Options& after);

}  // namespace plimsoll
