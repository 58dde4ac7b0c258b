#include "shared/base/json.h"

#include <cmath>
#include <limits>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "shared/base/clock.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

std::string again(std::string_view text) {
  const auto value = parse_json(text);
  return value ? dump_json(*value) : value.error().message;
}

TEST(Json, KeepsTheOrderOfKeys) {
  EXPECT_EQ(again(R"({"b":1,"a":{"z":[],"y":{}}})"), R"({"b":1,"a":{"z":[],"y":{}}})");
}

TEST(Json, DuplicateKeysKeepTheLastValue) {
  EXPECT_EQ(again(R"({"a":1,"b":2,"a":3})"), R"({"a":3,"b":2})");
}

TEST(Json, IntegersAreExactAndDoublesShortest) {
  EXPECT_EQ(again("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(again("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(again("0.1"), "0.1");
  EXPECT_EQ(again("1.0"), "1.0");
  EXPECT_FALSE(parse_json("18446744073709551615")->is_integer());
  EXPECT_EQ(Json(std::uint64_t{1} << 63).as_double(), std::ldexp(1.0, 63));
}

TEST(Json, WritesUtf8AsItIsAndReplacesTheRest) {
  EXPECT_EQ(dump_json(Json("é日\n\"")), R"("é日\n\"")");
  EXPECT_EQ(dump_json(Json("\xFF")), "\"\uFFFD\"");
  EXPECT_EQ(dump_json(Json::object({{"a", 1}}), 2), "{\n  \"a\": 1\n}");
}

TEST(Json, ErrorsNameThePlace) {
  const auto refused = parse_json("{\n  \"a\": tru\n}");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid);
  EXPECT_NE(refused.error().message.find("line 2, column"), std::string::npos)
      << refused.error().message;
  for (const char* bad :
       {"", "{", "[1,]", "nul", "\"\xFF\"", "1 2", "{\"a\"}", "\"\\ud800\"", "01"}) {
    EXPECT_FALSE(parse_json(bad)) << bad;
  }
}

TEST(Json, DepthIsBounded) {
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  EXPECT_FALSE(parse_json(deep));
  EXPECT_TRUE(parse_json(deep, {.depth_max = 200}));
  EXPECT_FALSE(parse_json(std::string(1'000'000, '[')));
}

TEST(Json, TheNumberOfValuesIsBounded) {
  // The list itself, the object, its two members and the last number.
  const std::string five = R"([{"a":1,"b":[]},2])";
  EXPECT_TRUE(parse_json(five, {.values_max = 5}));
  const auto refused = parse_json(five, {.values_max = 4});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid);
  EXPECT_NE(refused.error().message.find("more than 4 values"), std::string::npos)
      << refused.error().message;
  JsonLimits limits;
  limits.values_max /= kBulkDivisor;
  std::string many = "[0";
  for (std::size_t i = 0; i < limits.values_max; ++i) many += ",0";
  EXPECT_FALSE(parse_json(many + "]", limits));
}

TEST(Json, MessagePackHoldsMoreValuesThanARequestMay) {
  const std::string packed = to_msgpack(Json(Json::Array(1'200'000 / kBulkDivisor, Json(7))));
  const auto bytes = std::as_bytes(std::span(packed));
  EXPECT_TRUE(from_msgpack(bytes));
  EXPECT_FALSE(from_msgpack(bytes, {.values_max = 1000}));
}

TEST(Json, FindsAndSetsMembers) {
  Json value;
  value.set("a", 1).set("b", "x").set("a", 2);
  EXPECT_EQ(dump_json(value), R"({"a":2,"b":"x"})");
  EXPECT_EQ(value.find("a")->as_int(), 2);
  EXPECT_EQ(value.find("z"), nullptr);
  EXPECT_EQ(Json(1).find("a"), nullptr);
  Json list;
  list.push(1).push(nullptr);
  EXPECT_EQ(dump_json(list), "[1,null]");
}

TEST(Json, NamesItsTypes) {
  EXPECT_STREQ(Json().type_name(), "null");
  EXPECT_STREQ(Json(true).type_name(), "boolean");
  EXPECT_STREQ(Json(1).type_name(), "integer");
  EXPECT_STREQ(Json(1.5).type_name(), "number");
  EXPECT_STREQ(Json("").type_name(), "string");
  EXPECT_STREQ(Json::array().type_name(), "array");
  EXPECT_STREQ(Json::object().type_name(), "object");
}

TEST(Json, MessagePackKeepsEverything) {
  const Json value = Json::object({{"n", nullptr},
                                   {"b", true},
                                   {"i", std::numeric_limits<std::int64_t>::min()},
                                   {"d", 0.1},
                                   {"s", "é"},
                                   {"a", Json::array({1, Json::object()})},
                                   {"x", Json::Binary{0, 255, 1}}});
  const std::string packed = to_msgpack(value);
  const auto read = from_msgpack(std::as_bytes(std::span(packed)));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, value);
}

TEST(Json, MessagePackThatLiesAboutItsLengthIsRefused) {
  for (const std::string_view bytes :
       {std::string_view("\xdd\xff\xff\xff\xff", 5), std::string_view("\xc6\xff\xff\xff\xff", 5),
        std::string_view("\xdb\x00\x00\x00\x09x", 6), std::string_view("\x92\x01", 2),
        std::string_view("", 0), std::string_view("\x01\x02", 2)}) {
    EXPECT_FALSE(from_msgpack(std::as_bytes(std::span(bytes))));
  }
}

}  // namespace
}  // namespace plimsoll

namespace plimsoll {
namespace {

TEST(Json, AnObjectOfAHundredThousandKeysIsReadAndPrintedInLinearTime) {
  constexpr int kKeys = 100'000 / kBulkDivisor;
  std::string text = "{\"k0\":0";
  for (int i = 1; i < kKeys; ++i) text += ",\"k" + std::to_string(i) + "\":" + std::to_string(i);
  text += ",\"k7\":-7}";
  const Result<Json> json = parse_json(text);
  ASSERT_TRUE(json);
  EXPECT_EQ(json->as_object().size(), std::size_t{kKeys});
  EXPECT_EQ(json->find("k7")->as_int(), -7);
  EXPECT_EQ(*parse_json(dump_json(*json)), *json);
}

}  // namespace
}  // namespace plimsoll
