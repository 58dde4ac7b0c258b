#include "shared/model/gguf_header.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/gguf_bytes.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ41 = 3;

// A valid file with one pair and two tensors.
GgufBytes small_file() {
  GgufBytes file;
  file.start(2, 1).text_pair("general.architecture", "llama");
  file.tensor("a", {4, 3}, kF32, 0).tensor("b", {32, 2}, kQ41, 64);
  return file.pad().zeros(64 + 40);
}

void expect_refused(const GgufBytes& file, std::string_view words) {
  const auto header = parse_gguf_header(file.bytes());
  ASSERT_FALSE(header) << "expected a refusal with: " << words;
  EXPECT_EQ(header.error().code, Code::invalid);
  EXPECT_NE(header.error().message.find(words), std::string::npos)
      << "expected: " << words << "\nmessage:  " << header.error().message;
}

template <typename T>
T value_of(std::uint32_t type, auto stored) {
  GgufBytes file;
  file.start(0, 1).text("key").u32(type).number(stored);
  auto header = parse_gguf_header(file.bytes());
  if (!header) {
    ADD_FAILURE() << header.error().message;
    return T{};
  }
  return std::get<T>(header->metadata.at("key"));
}

TEST(GgufHeader, ReadsTensorsWithTheOutermostSizeFirst) {
  const GgufBytes file = small_file();
  const auto header = parse_gguf_header(file.bytes());
  ASSERT_TRUE(header) << header.error().message;
  const WeightInfo* a = header->weights.find("a");
  const WeightInfo* b = header->weights.find("b");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(a->shape, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(a->bytes, 48);
  EXPECT_EQ(b->dtype, DType::q4_1);
  EXPECT_EQ(b->bytes, 40);
  EXPECT_EQ(a->offset % 32, 0U);
  EXPECT_EQ(b->offset, a->offset + 64);
  EXPECT_EQ(b->offset + 40, file.size());
}

TEST(GgufHeader, ReadsEveryScalarType) {
  EXPECT_EQ(value_of<std::int64_t>(0, std::uint8_t{200}), 200);
  EXPECT_EQ(value_of<std::int64_t>(1, std::int8_t{-3}), -3);
  EXPECT_EQ(value_of<std::int64_t>(2, std::uint16_t{60000}), 60000);
  EXPECT_EQ(value_of<std::int64_t>(3, std::int16_t{-300}), -300);
  EXPECT_EQ(value_of<std::int64_t>(4, std::uint32_t{4000000000}), 4000000000);
  EXPECT_EQ(value_of<std::int64_t>(5, std::int32_t{-70000}), -70000);
  EXPECT_EQ(value_of<double>(6, 1.5F), 1.5);
  EXPECT_EQ(value_of<bool>(7, std::uint8_t{1}), true);
  EXPECT_EQ(value_of<std::int64_t>(10, std::uint64_t{1} << 62), std::int64_t{1} << 62);
  EXPECT_EQ(value_of<std::int64_t>(11, std::numeric_limits<std::int64_t>::min()),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(value_of<double>(12, 0.1), 0.1);
}

TEST(GgufHeader, ReadsArrays) {
  GgufBytes file;
  file.start(0, 4);
  file.text("ints").u32(9).u32(3).u64(2).number(std::int16_t{-1}).number(std::int16_t{7});
  file.text("floats").u32(9).u32(6).u64(1).number(0.25F);
  file.text("bools")
      .u32(9)
      .u32(7)
      .u64(3)
      .number(std::uint8_t{1})
      .number(std::uint8_t{0})
      .number(std::uint8_t{1});
  file.text("texts").u32(9).u32(8).u64(2).text("one").text("");
  const auto header = parse_gguf_header(file.bytes());
  ASSERT_TRUE(header) << header.error().message;
  const auto& metadata = header->metadata;
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(metadata.at("ints")),
            (std::vector<std::int64_t>{-1, 7}));
  EXPECT_EQ(std::get<std::vector<double>>(metadata.at("floats")), (std::vector<double>{0.25}));
  EXPECT_EQ(std::get<std::vector<bool>>(metadata.at("bools")),
            (std::vector<bool>{true, false, true}));
  EXPECT_EQ(std::get<std::vector<std::string>>(metadata.at("texts")),
            (std::vector<std::string>{"one", ""}));
}

TEST(GgufHeader, KeepsBytesThatAreNotUtf8) {
  const GgufBytes file = GgufBytes().start(0, 1).text_pair("key", "\xff\xfe");
  const auto header = parse_gguf_header(file.bytes());
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(std::get<std::string>(header->metadata.at("key")), "\xff\xfe");
}

TEST(GgufHeader, ReadsVersion2) {
  EXPECT_TRUE(parse_gguf_header(GgufBytes().start(0, 0, 2).bytes()));
}

TEST(GgufHeader, RefusesOtherFormatsAndVersions) {
  expect_refused(GgufBytes(), "ends inside the magic");
  expect_refused(GgufBytes().number(std::uint64_t{0x04034b50}),
                 "byte 0: not a GGUF file: it starts with 50 4b 03 04");
  expect_refused(GgufBytes().start(0, 0, 1), "byte 4: GGUF version 1");
  expect_refused(GgufBytes().start(0, 0, 4), "GGUF version 4 is unknown, expected 2 or 3");
  expect_refused(GgufBytes().start(0, 0, 0x03000000), "big-endian");
}

TEST(GgufHeader, EveryTruncationIsRefused) {
  const std::string whole = small_file().text();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto header = parse_gguf_header(std::as_bytes(std::span(whole.data(), length)));
    ASSERT_FALSE(header) << "a file cut to " << length << " of " << whole.size() << " bytes";
    EXPECT_EQ(header.error().code, Code::invalid);
  }
}

TEST(GgufHeader, RefusesCountsThatTheFileCannotHold) {
  expect_refused(GgufBytes().start(1ULL << 60, 0),
                 "byte 8: the tensor count is 1152921504606846976");
  expect_refused(GgufBytes().start(0, 1ULL << 60),
                 "byte 16: the metadata count is 1152921504606846976");
  expect_refused(GgufBytes().start(0, 1).text("key").u32(9).u32(8).u64(1ULL << 61).zeros(100),
                 "array \"key\" has 2305843009213693952 elements; expected at most 12");
  expect_refused(GgufBytes().start(0, 1).text("key").u32(8).u64(~0ULL),
                 "key is 18446744073709551615 bytes long");
  expect_refused(GgufBytes().start(0, 1).text("key").u32(8).u64(9).zeros(8),
                 "the file ends inside key: expected 9 more bytes, found 8");
}

TEST(GgufHeader, RefusesArraysBeyondItsBudget) {
  GgufBytes file;
  file.start(0, 1).text("key").u32(9).u32(7).u64(kGgufElementsMax + 1).zeros(kGgufElementsMax + 1);
  expect_refused(file, "all arrays may have 33554432 elements together");
}

TEST(GgufHeader, RefusesOddMetadata) {
  expect_refused(GgufBytes().start(0, 1).text("").u32(0).u32(0), "an empty key");
  expect_refused(GgufBytes().start(0, 1).text("key").u32(13).u32(0), "value type 13; expected 0");
  expect_refused(GgufBytes().start(0, 1).text("key").u32(9).u32(13).u64(0), "value type 13");
  expect_refused(GgufBytes().start(0, 1).text("key").u32(9).u32(9).u64(1).zeros(20),
                 "an array of arrays");
  expect_refused(GgufBytes().start(0, 1).text("key").u32(7).number(std::uint8_t{2}),
                 "a boolean with the value 2");
  expect_refused(GgufBytes().start(0, 1).text("key").u32(10).u64(~0ULL),
                 "18446744073709551615; expected at most 9223372036854775807");
  expect_refused(GgufBytes().start(0, 1).text("key").u32(9).u32(10).u64(1).u64(1ULL << 63),
                 "9223372036854775808; expected at most 9223372036854775807");
  expect_refused(GgufBytes().start(0, 2).int_pair("key", 1).int_pair("key", 2),
                 "key \"key\" appears twice");
}

TEST(GgufHeader, RefusesOddTensors) {
  const auto one = [](std::string_view name, std::initializer_list<std::uint64_t> sizes,
                      std::uint32_t type, std::uint64_t offset) {
    return GgufBytes().start(1, 0).tensor(name, sizes, type, offset).pad().zeros(256);
  };
  EXPECT_TRUE(parse_gguf_header(one("a", {4}, kF32, 0).bytes()));
  expect_refused(one("", {4}, kF32, 0), "an empty name");
  expect_refused(one(std::string(256, 'n'), {4}, kF32, 0), "256 bytes long; expected at most 255");
  expect_refused(one("a", {}, kF32, 0), "0 dimensions; expected 1 to 4");
  expect_refused(one("a", {1, 1, 1, 1, 1}, kF32, 0), "5 dimensions");
  expect_refused(one("a", {4, 0}, kF32, 0), "dimension 1 of tensor \"a\" is 0");
  expect_refused(one("a", {1ULL << 32, 1ULL << 32}, kF32, 0), "dimension 1");
  expect_refused(one("a", {1ULL << 60}, kF32, 0), "dimension 0");
  expect_refused(one("a", {64, 1ULL << 58}, kF32, 0), "dimension 1");
  EXPECT_TRUE(parse_gguf_header(one("a", {256}, 10, 0).bytes()));  // Q2_K: read, not run
  expect_refused(one("a", {32}, 4, 0), "tensor \"a\" has the type 4, which is not known to us");
  expect_refused(one("a", {32}, 77, 0), "has the type 77");
  expect_refused(one("a", {16, 4}, kQ41, 0), "rows of 16 elements; expected a multiple of 32");
  expect_refused(one("a", {4}, kF32, 8), "offset 8; expected a multiple of the alignment, 32");
  expect_refused(one("a", {4}, kF32, ~31ULL), "cut short");
  expect_refused(one("a", {65}, kF32, 0), "has 260 at offset 0");
}

TEST(GgufHeader, SaysHowManyBytesAFileShouldHaveThatWasCutShort) {
  GgufBytes whole;
  whole.start(2, 0).tensor("a", {64}, kF32, 0).tensor("b", {1024}, kF32, 256).pad().zeros(4352);
  const std::span<const std::byte> bytes = whole.bytes();
  ASSERT_TRUE(parse_gguf_header(bytes));
  for (const std::size_t missing : {1, 2000, 4100, 4352}) {
    const auto cut = bytes.first(bytes.size() - missing);
    const Result<GgufHeader> header = parse_gguf_header(cut);
    ASSERT_FALSE(header) << missing;
    EXPECT_NE(header.error().message.find("the file should have " + std::to_string(bytes.size()) +
                                          " bytes and has " + std::to_string(cut.size())),
              std::string::npos)
        << header.error().message;
  }
}

TEST(GgufHeader, RefusesTensorsThatRepeatOrOverlap) {
  GgufBytes twice;
  twice.start(2, 0).tensor("a", {4}, kF32, 0).tensor("a", {4}, kF32, 32).pad().zeros(64);
  expect_refused(twice, "tensor \"a\" appears twice");
  GgufBytes overlap;
  overlap.start(2, 0).tensor("b", {4}, kF32, 32).tensor("a", {12}, kF32, 0).pad().zeros(64);
  expect_refused(overlap, "tensors \"a\" and \"b\" overlap");
  GgufBytes shared;
  shared.start(2, 0).tensor("a", {8}, kF32, 0).tensor("b", {8}, kF32, 0).pad().zeros(32);
  expect_refused(shared, "overlap");
}

TEST(GgufHeader, FollowsTheFilesAlignment) {
  GgufBytes file;
  file.start(1, 1)
      .int_pair("general.alignment", 256)
      .tensor("a", {4}, kF32, 256)
      .pad(256)
      .zeros(272);
  const auto header = parse_gguf_header(file.bytes());
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->weights.find("a")->offset, 512U);
  for (const std::uint32_t odd : {0U, 24U, 1U << 21}) {
    expect_refused(GgufBytes().start(0, 1).int_pair("general.alignment", odd), "a power of two");
  }
  expect_refused(GgufBytes().start(0, 1).text_pair("general.alignment", "32"), "not an integer");
}

TEST(GgufHeader, NamesOutOfTheFileAreMadePrintable) {
  const std::string name = "\xff" + std::string(200, 'x');
  GgufBytes file;
  file.start(1, 0).tensor(name, {4}, 10, 0);
  const auto header = parse_gguf_header(file.bytes());
  ASSERT_FALSE(header);
  EXPECT_NE(header.error().message.find("\xEF\xBF\xBD"), std::string::npos);
  EXPECT_EQ(header.error().message.find('\xff'), std::string::npos);
  EXPECT_NE(header.error().message.find("x...\""), std::string::npos);
}

TEST(GgufHeader, BoundsTheMemoryOfAllStrings) {
  constexpr std::uint64_t kLimit = 64U << 10;
  GgufBytes empties;
  empties.start(0, 1).text("many").u32(9).u32(8).u64(4000).zeros(4000 * 8);
  ASSERT_TRUE(parse_gguf_header(empties.bytes()));
  const auto refused = parse_gguf_header(empties.bytes(), kLimit);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid);
  EXPECT_NE(refused.error().message.find("up to \"many\" the strings of the metadata need "),
            std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(refused.error().message.ends_with("expected at most 65536"));
  GgufBytes together;
  together.start(0, 3);
  for (const char* key : {"a", "b", "c"}) together.text_pair(key, std::string(30'000, 'x'));
  ASSERT_TRUE(parse_gguf_header(together.bytes()));
  EXPECT_FALSE(parse_gguf_header(together.bytes(), kLimit));
}

}  // namespace
}  // namespace plimsoll
