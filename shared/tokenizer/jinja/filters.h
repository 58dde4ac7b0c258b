// Filters: what `value | name(...)` gives, and tests, `value is name(...)`.
#pragma once

#include <string>
#include <string_view>

#include "shared/base/result.h"
#include "shared/tokenizer/jinja/interpreter.h"

namespace plimsoll::jinja {

// What a template may use at all; asked when it is compiled.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

Result<Value> apply_filter(Interpreter& interpreter, const std::string& name, const Value& value,
                           const Arguments& given);
Result<bool> apply_test(Interpreter& interpreter, const std::string& name, const Value& value,
                        const Arguments& given);

}  // namespace plimsoll::jinja
