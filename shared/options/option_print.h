// OptionPrint: the option table as help, default file, reference page, schema and current values.
#pragma once

#include <string>
#include <string_view>

#include "shared/base/json.h"
#include "shared/options/option_set.h"

namespace plimsoll {

// For --help: grouped, at most 100 columns.
std::string option_help();
// Every setting as a comment with its default: configs/default.conf.
std::string default_config_file();
// configs/reference.md.
std::string option_reference();
// JSON Schema (2020-12) of an object {name: value} as in the JSON form of options.
Json option_schema();

// `name = value` lines that read back as the same options; with `origins`, where each came from.
struct ConfigShow {
  bool origins = false;
};
std::string show_config(const OptionSet& set, ConfigShow show);

}  // namespace plimsoll
