#include "shared/tokenizer/jinja/value.h"

#include <gtest/gtest.h>

namespace plimsoll::jinja {
namespace {

TEST(JinjaValue, TruthIsPythons) {
  Heap heap({});
  for (const char* json : {"null", "false", "0", "0.0", "\"\"", "[]", "{}"}) {
    EXPECT_FALSE(is_true(heap.from_json(*parse_json(json)))) << json;
  }
  for (const char* json : {"true", "-1", "0.1", "\" \"", "[0]", "{\"\":0}"}) {
    EXPECT_TRUE(is_true(heap.from_json(*parse_json(json)))) << json;
  }
  EXPECT_FALSE(is_true(heap.undefined("x")));
}

TEST(JinjaValue, NumbersAreEqualAcrossTypes) {
  Heap heap({});
  EXPECT_TRUE(equal(heap, integer(1), real(1.0)));
  EXPECT_TRUE(equal(heap, integer(1), boolean(true)));
  EXPECT_FALSE(equal(heap, integer(1), heap.text("1", true)));
  EXPECT_FALSE(equal(heap, none(), heap.undefined("x")));
  EXPECT_TRUE(equal(heap, heap.from_json(*parse_json(R"({"a":[1],"b":2})")),
                    heap.from_json(*parse_json(R"({"b":2.0,"a":[1]})"))));
}

TEST(JinjaValue, OnlyComparableValuesHaveAnOrder) {
  Heap heap({});
  EXPECT_TRUE(*less(heap, heap.text("a", true), heap.text("é", true)));
  EXPECT_TRUE(
      *less(heap, heap.from_json(*parse_json("[1,2]")), heap.from_json(*parse_json("[1,3]"))));
  const auto refused = less(heap, integer(1), heap.text("a", true));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "'<' is not defined between int and str");
}

TEST(JinjaValue, MembersKeepTheirOrder) {
  Heap heap({});
  const Value dict = heap.dict();
  set_member(heap, *dict.dict, heap.text("b", true), integer(1));
  set_member(heap, *dict.dict, heap.text("a", true), integer(2));
  set_member(heap, *dict.dict, heap.text("b", true), integer(3));
  EXPECT_EQ(to_text(heap, dict).bytes(), "{'b': 3, 'a': 2}");
  EXPECT_EQ(find_member(heap, *dict.dict, "zz"), nullptr);
}

TEST(JinjaValue, VariablesAreUntrustedAndLiteralsAreNot) {
  Heap heap({});
  EXPECT_FALSE(to_text(heap, heap.from_json(Json("x"))).trusted(0));
  EXPECT_FALSE(to_text(heap, heap.from_json(Json(7))).trusted(0));
  EXPECT_TRUE(to_text(heap, integer(7)).trusted(0));
}

TEST(JinjaValue, TheHeapSaysWhenItIsExhausted) {
  Heap bytes({.bytes_max = 1000, .steps_max = 1000});
  EXPECT_TRUE(bytes.reserve(900));
  EXPECT_FALSE(bytes.reserve(1001));
  EXPECT_TRUE(bytes.exhausted());
  Heap steps({.bytes_max = 1000, .steps_max = 10});
  steps.charge(11);
  EXPECT_TRUE(steps.exhausted());
  EXPECT_EQ(steps.exhaustion().message,
            "the chat template takes more than 10 steps for this input");
}

}  // namespace
}  // namespace plimsoll::jinja
