// Hostile JSON and MessagePack: refused, or read and written again without change.
#include "shared/base/json.h"

#include <cmath>

#include <gtest/gtest.h>

#include "shared/base/text.h"
#include "tests/support/fuzz.h"

namespace plimsoll {
namespace {

void fuzz_json(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto value = parse_json(text);
  if (!value) {
    EXPECT_EQ(value.error().code, Code::invalid);
    EXPECT_TRUE(is_utf8(value.error().message));
    return;
  }
  const std::string dumped = dump_json(*value);
  const auto again = parse_json(dumped);
  ASSERT_TRUE(again) << dumped;
  EXPECT_EQ(dump_json(*again), dumped);
  const auto indented = parse_json(dump_json(*value, 2));
  ASSERT_TRUE(indented);
  EXPECT_EQ(*indented, *again);
}
PLIMSOLL_FUZZ_MAIN(fuzz_json)

void fuzz_msgpack(std::span<const std::byte> bytes) {
  const auto value = from_msgpack(bytes);
  if (!value) return;
  const std::string packed = to_msgpack(*value);
  const auto again = from_msgpack(std::as_bytes(std::span(packed)));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(to_msgpack(*again), packed);
}

const std::vector<std::string>& json_seeds() {
  static const std::vector<std::string> seeds = {
      "{}",
      "[]",
      "null",
      "true",
      "-0",
      "1e400",
      "0.1",
      "123456789012345678901234567890",
      R"({"a":[1,2.5,"x\u00e9\ud83d\ude00",null,true],"b":{"c":{}},"a":2})",
      R"(["\n\t\"\\\/\b\f\r", "日本語", ""])",
      "[[[[[[[[[[]]]]]]]]]]",
      "  [ 1 , 2 ]  "};
  return seeds;
}

TEST(FuzzJson, TextIsRefusedOrReadBackTheSame) {
  FuzzOptions options;
  options.seed = 20241129;
  options.dictionary = {"[", "]", "{\"k\":", "}", "\\u0000", "\\ud800", "1e999", "\xFF", ",", "-1"};
  EXPECT_GT(fuzz_corpus(json_seeds(), options, fuzz_json).inputs, 100U);
}

TEST(FuzzJson, MessagePackIsRefusedOrReadBackTheSame) {
  std::vector<std::string> seeds;
  for (const std::string& text : json_seeds()) {
    if (const auto value = parse_json(text)) seeds.push_back(to_msgpack(*value));
  }
  seeds.push_back(to_msgpack(Json(Json::Binary{1, 2, 255})));
  FuzzOptions options;
  options.seed = 20241129;
  options.dictionary = {"\xdd\xff\xff\xff\xff",
                        "\xdf\xff\xff\xff\xff",
                        "\xc6\xff\xff\xff\xff",
                        "\xdb\xff\xff\xff\xff",
                        "\x91",
                        "\x81\xa1k",
                        "\xc7",
                        "\xcb"};
  EXPECT_GT(fuzz_corpus(seeds, options, fuzz_msgpack).inputs, 100U);
}

}  // namespace
}  // namespace plimsoll
