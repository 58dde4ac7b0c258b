// PythonLiteral: arguments as Python prints them, `Name(a=1, b='x', c={...})` or `{'a': 1}`.
//
// Tolerant: what is cut short keeps what came before; what is no literal (`torch.bfloat16`,
// `<Mode.X: 1>`, a bare word) is kept as its text. Bounded in depth and in number of values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/json.h"

namespace plimsoll {

struct PythonArguments {
  std::vector<std::pair<std::string, Json>> values;  // in order; a repeated name keeps the last
  bool is_whole = false;                             // the end was there
};

// `text` begins behind the opening parenthesis or brace, or is a bare list `a=1, b=2` up to its
// end. Names stand before '=' or, quoted, before ':'.
PythonArguments parse_python_arguments(std::string_view text);

// A value as one writes it on a command line: 0.55, true -> "True", null -> "None", text as it is,
// lists and dicts as compact JSON; at most kValueTextMax bytes.
inline constexpr std::size_t kValueTextMax = 512;
std::string python_value_text(const Json& value);

}  // namespace plimsoll
