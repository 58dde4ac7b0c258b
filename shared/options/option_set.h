// OptionSet: values of all options with where each came from, and its JSON form.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/options/options.h"

namespace plimsoll {

enum class Source { built_in, file, environment, flag, reconfigured };
const char* source_name(Source source);  // "default", "file", "environment", "flag", ...

struct Origin {
  Source source = Source::built_in;
  std::string place;  // "plimsoll.conf:12", "PLIMSOLL_PORT", "--port"; empty for a default
};

struct OptionSet {
  Options values;
  std::map<std::string, Origin, std::less<>> origins;  // by option name; absent: built in

  Origin origin(std::string_view name) const;
};

// The set after `name=value` assignments (reconfigure); their origin becomes Source::reconfigured.
// Errors: Code::invalid, one line a mistake.
Result<OptionSet> change_options(const OptionSet& current,
                                 std::span<const std::pair<std::string, std::string>> assignments);

// {"port": {"value": 8000, "source": "flag", "place": "--port"}, ...}: all options, in table order.
// Sizes are bytes, durations milliseconds, an undecided value is "auto".
Json option_set_to_json(const OptionSet& set);
// Options that are absent keep their default. Errors: all mistakes, one a line.
Result<OptionSet> option_set_from_json(const Json& json);

}  // namespace plimsoll
