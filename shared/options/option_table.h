// OptionTable: one row a setting: name, field, range, unit, help, effect of a change, aliases.
//
// Everything else about settings follows from these rows: flags, environment variables, the file,
// help, the reference page, the schema and what a change needs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shared/base/clock.h"
#include "shared/options/option_diff.h"
#include "shared/options/options.h"

namespace plimsoll {

// An optional field takes the word `auto`, and a count whose row says so.
using OptionField = std::variant<std::string Options::*, std::int64_t Options::*,
                                 std::optional<std::int64_t> Options::*, milliseconds Options::*>;

enum class OptionKind { text, path, word, count, size, duration, fraction };

struct OptionRow {
  std::string_view name = {};  // "max-running-requests": the flag without its dashes
  std::string_view group = {};
  OptionField field = {};
  OptionKind kind = OptionKind::text;
  // Of a count; bytes of a size; milliseconds of a duration; millionths of a fraction.
  std::int64_t min = 0;
  std::int64_t max = 0;
  bool zero_is_auto = false;                     // of a count
  std::span<const std::string_view> words = {};  // the allowed ones, of a word
  std::string_view alone = {};                   // what the flag without a value means
  std::string_view allowed = {};                 // of a checked text, for people
  // Of a text with rules of its own; `repeats`: a flag given twice adds, with a comma between.
  Status (*check)(std::string_view) = nullptr;
  bool repeats = false;
  std::string_view unit = {};   // of a count: "tokens"
  std::string_view empty = {};  // what an empty text means, where it is the default
  std::string_view bare = {};   // of a word: what the flag without a value means; empty: an error
  Effect effect = Effect::full;
  std::span<const std::string_view> aliases = {};  // names in SGLang, vLLM and llama-server
  std::string_view help = {};                      // one sentence
};

std::span<const OptionRow> option_table();
// By name or alias; `_` counts as `-`. nullptr where there is none.
const OptionRow* find_option(std::string_view name);
// The name or alias that was probably meant, or "".
std::string nearest_option(std::string_view name);
std::string environment_name(const OptionRow& row);  // "PLIMSOLL_MAX_RUNNING_REQUESTS"
bool takes_auto(const OptionRow& row);

}  // namespace plimsoll
