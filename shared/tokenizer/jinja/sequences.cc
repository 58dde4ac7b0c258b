#include "shared/tokenizer/jinja/sequences.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace plimsoll::jinja {

Result<Value> joined(Heap& heap, const std::vector<Value>& values, const Text& separator) {
  Text out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(to_text(heap, values[i]));
    if (!heap.reserve(out.size())) return heap.exhaustion();
  }
  return heap.text(std::move(out));
}

Result<Value> replaced(Heap& heap, const Text& text, const Text& from, const Text& to,
                       std::size_t count_max) {
  TRY(heap.work(text.size() + from.size()));
  std::size_t count = 0;
  if (from.empty()) {
    if (!heap.reserve(text.size() * sizeof(std::size_t))) return heap.exhaustion();
    count = std::min(count_characters(text.bytes()) + 1, count_max);
  } else {
    for (auto at = position_of(text.bytes(), from.bytes()); at && count < count_max;
         at = position_of(text.bytes(), from.bytes(), *at + from.size())) {
      ++count;
    }
  }
  if (!heap.reserve(text.size() + count * to.size())) return heap.exhaustion();
  return heap.text(replace(text, from.bytes(), to, count_max));
}

Value item_pairs(Heap& heap, const Dict& dict) {
  std::vector<Value> pairs;
  pairs.reserve(dict.members.size());
  for (const auto& [key, member] : dict.members) {
    pairs.push_back(heap.list({key, member}, Kind::tuple));
  }
  return heap.list(std::move(pairs));
}

Value comparable(Heap& heap, const Value& key, bool case_sensitive) {
  if (!case_sensitive && key.is(Kind::text) && !heap.work(case_work(*key.text))) return key;
  return !case_sensitive && key.is(Kind::text) ? heap.text(lower(*key.text)) : key;
}

Result<std::vector<Value>> sorted(Heap& heap, const std::vector<Value>& values,
                                  std::vector<Value> keys, SortOrder order) {
  for (Value& key : keys) key = comparable(heap, key, order.case_sensitive);
  std::vector<std::size_t> places(values.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  // Insertion into the sorted part: a comparison may fail, which std::sort has no way to say.
  std::vector<std::size_t> done;
  for (const std::size_t place : places) {
    std::size_t low = 0;
    std::size_t high = done.size();
    while (low < high) {  // the first that is to come after it
      const std::size_t middle = (low + high) / 2;
      const Value& other = keys[done[middle]];
      const bool before =
          order.reverse ? TRY(less(heap, other, keys[place])) : TRY(less(heap, keys[place], other));
      if (before) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    heap.charge(done.size() / 64);
    done.insert(done.begin() + static_cast<std::ptrdiff_t>(low), place);
  }
  std::vector<Value> out;
  for (const std::size_t place : done) out.push_back(values[place]);
  return out;
}

}  // namespace plimsoll::jinja
