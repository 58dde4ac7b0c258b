#include <gtest/gtest.h>

#include "shared/tokenizer/jinja/value.h"

namespace plimsoll::jinja {
namespace {

std::string text_of(const char* json) {
  Heap heap({});
  return to_text(heap, heap.from_json(*parse_json(json))).bytes();
}

std::string json_of(const char* json, const JsonStyle& style = {}) {
  Heap heap({});
  const auto value = to_json(heap, heap.from_json(*parse_json(json)), style);
  return value ? value->text->bytes() : value.error().message;
}

TEST(JinjaPrint, PrintsAsPythonDoes) {
  EXPECT_EQ(text_of("null"), "None");
  EXPECT_EQ(text_of("[true, 1.0, 1e16, 1e-7, 0.1]"), "[True, 1.0, 1e+16, 1e-07, 0.1]");
  EXPECT_EQ(text_of(R"(["a'b", "a\"b", "a'\"b", "\n\u0001"])"),
            R"(["a'b", 'a"b', 'a\'"b', '\n\x01'])");
  EXPECT_EQ(text_of(R"({"a": {"b": []}})"), "{'a': {'b': []}}");
}

TEST(JinjaPrint, WritesJsonAsPythonDoes) {
  EXPECT_EQ(json_of(R"({"b":[1,"é\u0001\t"],"a":1.0})"), R"({"b": [1, "é\u0001\t"], "a": 1.0})");
  EXPECT_EQ(json_of(R"({"b":1,"a":2})", {.sorted = true}), R"({"a": 2, "b": 1})");
  EXPECT_EQ(json_of(R"(["é😀"])", {.ascii = true}), R"(["\u00e9\ud83d\ude00"])");
  EXPECT_EQ(json_of(R"({"a":[1,[]],"b":{}})", {.indent = 2, .item_separator = ","}),
            "{\n  \"a\": [\n    1,\n    []\n  ],\n  \"b\": {}\n}");
}

TEST(JinjaPrint, AnUndefinedValueHasNoJson) {
  Heap heap({});
  const auto refused = to_json(heap, heap.undefined("tools"), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "tojson: an object of type Undefined has no JSON form ('tools' is undefined)");
}

TEST(JinjaPrint, AListInsideItselfIsCutOff) {
  Heap heap({});
  const Value list = heap.list({});
  list.list->items.push_back(list);
  EXPECT_NE(to_text(heap, list).bytes().find("..."), std::string::npos);
  EXPECT_FALSE(to_json(heap, list, {}));
}

}  // namespace
}  // namespace plimsoll::jinja
