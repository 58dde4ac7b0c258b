#include "shared/options/option_diff.h"

#include <algorithm>

#include "shared/options/option_value.h"

namespace plimsoll {

const char* effect_name(Effect effect) {
  switch (effect) {
    case Effect::live:
      return "live";
    case Effect::rolling:
      return "rolling";
    case Effect::full:
      return "full";
    case Effect::fixed:
      return "fixed";
  }
  return "fixed";
}

OptionDiff diff_options(const Options& before, const Options& after) {
  OptionDiff diff;
  for (const OptionRow& row : option_table()) {
    std::string old_text = option_text(before, row);
    std::string new_text = option_text(after, row);
    if (old_text == new_text) continue;
    diff.strongest = std::max(diff.strongest, row.effect);
    diff.changes.push_back(
        {std::string(row.name), std::move(old_text), std::move(new_text), row.effect});
  }
  return diff;
}

}  // namespace plimsoll
