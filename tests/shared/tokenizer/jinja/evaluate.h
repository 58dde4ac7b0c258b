// evaluate: the text that one template gives, for tests of the interpreter's parts.
#pragma once

#include <string>
#include <string_view>

#include "shared/base/json.h"
#include "shared/tokenizer/jinja/interpreter.h"
#include "shared/tokenizer/jinja/parser.h"

namespace plimsoll::jinja {

// The output, or the error's message.
inline std::string run_template(std::string_view source, const char* variables = "{}") {
  const auto body = parse(source);
  if (!body) return body.error().message;
  const Json json = *parse_json(variables);
  const auto text = Interpreter({}, 0).run(*body, json);
  return text ? text->bytes() : text.error().message;
}

inline std::string evaluate(std::string_view expression, const char* variables = "{}") {
  return run_template("{{ " + std::string(expression) + " }}", variables);
}

}  // namespace plimsoll::jinja
