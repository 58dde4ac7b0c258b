// Sequences: what filters and methods share: joining, replacing, sorting, pairs.
#pragma once

#include <vector>

#include "shared/base/result.h"
#include "shared/tokenizer/jinja/text.h"
#include "shared/tokenizer/jinja/value.h"

namespace plimsoll::jinja {

Result<Value> joined(Heap& heap, const std::vector<Value>& values, const Text& separator);
// str.replace(); bounded before it is done.
Result<Value> replaced(Heap& heap, const Text& text, const Text& from, const Text& to,
                       std::size_t count_max);
// A list of (key, value) tuples.
Value item_pairs(Heap& heap, const Dict& dict);

struct SortOrder {
  bool reverse = false;
  bool case_sensitive = false;
};
// Sorts `values` by `keys`, stably; an error where two keys have no order.
Result<std::vector<Value>> sorted(Heap& heap, const std::vector<Value>& values,
                                  std::vector<Value> keys, SortOrder order);
// A key as it is compared: a text in lower case, unless case matters.
Value comparable(Heap& heap, const Value& key, bool case_sensitive);

}  // namespace plimsoll::jinja
