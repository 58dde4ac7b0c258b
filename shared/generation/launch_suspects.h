// LaunchSuspects: how likely a changed option or surrounding is to be why a launch ran out of
// memory, by its name alone.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

struct Suspect {
  int weight = 0;          // 0 to 100
  std::string why = {};    // one clause; empty: nothing is known about it
  bool is_graphs = false;  // it decides how much is captured
};

Suspect option_suspect(std::string_view canonical_name);
Suspect surrounding_suspect(std::string_view name);

}  // namespace plimsoll
