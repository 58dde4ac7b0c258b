// Arguments: what a call, filter or test was given, by place or by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/result.h"
#include "shared/tokenizer/jinja/value.h"

namespace plimsoll::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // nullptr where absent.
  const Value* find(std::size_t place, std::string_view name) const;
  // The fallback where absent or none; an error where it has another type.
  Result<std::int64_t> integer(std::size_t place, std::string_view name,
                               std::int64_t fallback) const;
  Result<std::string> text(std::size_t place, std::string_view name, std::string fallback) const;
  bool truth(std::size_t place, std::string_view name, bool fallback) const;
};

// Counts the work on a call's subject and texts before it is done: an error where the run is over.
Status charge_texts(Heap& heap, const Value& subject, const Arguments& given);

}  // namespace plimsoll::jinja
