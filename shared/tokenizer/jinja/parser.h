// Parser: a template's source into its syntax tree.
#pragma once

#include <string_view>

#include "shared/base/result.h"
#include "shared/tokenizer/jinja/ast.h"

namespace plimsoll::jinja {

// Errors: Code::invalid with the line; a construct outside the subset, by name. Source size and
// nesting are bounded.
Result<Body> parse(std::string_view source);

}  // namespace plimsoll::jinja
