// Arithmetic: Python's + - * / // % ** on values, with bounds.
#pragma once

#include <string>

#include "shared/base/result.h"
#include "shared/tokenizer/jinja/value.h"

namespace plimsoll::jinja {

// `operation` is the operator's spelling.
Result<Value> arithmetic(Heap& heap, const std::string& operation, const Value& left,
                         const Value& right);
Result<Value> negated(const Value& number);
// "'messages' is undefined".
Error undefined_error(const Value& value);

}  // namespace plimsoll::jinja
