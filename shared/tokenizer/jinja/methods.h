// Methods: those of Python's str, list and dict that templates call.
#pragma once

#include <string>
#include <string_view>

#include "shared/base/result.h"
#include "shared/tokenizer/jinja/interpreter.h"

namespace plimsoll::jinja {

bool is_method(const Value& object, std::string_view name);
Result<Value> call_method(Interpreter& interpreter, const Value& object, const std::string& name,
                          const Arguments& given);

}  // namespace plimsoll::jinja
