#include "shared/tokenizer/jinja/sequences.h"

#include <gtest/gtest.h>

namespace plimsoll::jinja {
namespace {

TEST(JinjaSequences, SortingIsStableInBothDirections) {
  Heap heap({});
  const std::vector<Value> values = {heap.text("b1", true), heap.text("a1", true),
                                     heap.text("b2", true), heap.text("A2", true)};
  std::vector<Value> keys;
  for (const Value& value : values) keys.push_back(heap.text(value.text->sub(0, 1)));
  const auto order = [&](SortOrder wanted) {
    std::string out;
    const auto done = sorted(heap, values, keys, wanted);
    for (const Value& value : *done) out += value.text->bytes() + " ";
    return out;
  };
  EXPECT_EQ(order({}), "a1 A2 b1 b2 ");
  EXPECT_EQ(order({.reverse = true}), "b1 b2 a1 A2 ");
  EXPECT_EQ(order({.case_sensitive = true}), "A2 a1 b1 b2 ");
}

TEST(JinjaSequences, SortingWhatHasNoOrderIsAnError) {
  Heap heap({});
  EXPECT_FALSE(sorted(heap, {integer(1), none()}, {integer(1), none()}, {}));
}

TEST(JinjaSequences, ReplacingIsBoundedBeforeItIsDone) {
  Heap heap({.bytes_max = 100'000});
  const Text large(std::string(1000, 'a'), true);
  EXPECT_FALSE(replaced(heap, large, Text("a", true), large, SIZE_MAX));
}

TEST(JinjaSequences, JoinsWhatPrints) {
  Heap heap({});
  EXPECT_EQ(
      joined(heap, {integer(1), none(), heap.text("x", true)}, Text("-", true))->text->bytes(),
      "1-None-x");
}

}  // namespace
}  // namespace plimsoll::jinja
