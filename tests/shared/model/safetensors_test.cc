#include "shared/model/safetensors.h"

#include <cstring>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, '\0');
}

Result<SafetensorsHeader> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), bytes.size());
}

void expect_refused(const std::string& bytes, std::string_view words) {
  const auto header = parse(bytes);
  ASSERT_FALSE(header) << "expected a refusal with: " << words;
  EXPECT_NE(header.error().message.find(words), std::string::npos)
      << "expected: " << words << "\nmessage:  " << header.error().message;
}

// One tensor "t" with these members.
std::string one(const std::string& members, std::size_t data_bytes) {
  return file_of(R"({"t":{)" + members + "}}", data_bytes);
}

TEST(Safetensors, ReadsNamesTypesShapesAndPlaces) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[3],"data_offsets":[16,28]},)"
      R"("a":{"dtype":"BF16","shape":[2,4],"data_offsets":[0,16]},)"
      R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[28,28]},)"
      R"("one":{"dtype":"I8","shape":[],"data_offsets":[28,29]}}  )";
  const auto parsed = parse(file_of(header, 29));
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->tensors.size(), 4U);
  EXPECT_EQ(parsed->tensors[0].name, "b");
  EXPECT_EQ(parsed->tensors[1].type, "BF16");
  EXPECT_EQ(parsed->tensors[1].shape, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(parsed->tensors[1].bytes, 16);
  EXPECT_EQ(parsed->begins[1], 8 + header.size());
  EXPECT_EQ(parsed->tensors[3].bytes, 1);
}

TEST(Safetensors, HostileLengthsAreRefused) {
  expect_refused("", "it has 0 bytes");
  expect_refused("1234567", "it has 7 bytes");
  expect_refused(std::string(8, '\xff'), "expected at most 100000000");
  expect_refused(file_of("{}", 0).substr(0, 9), "is 2 bytes long, but only 1 follow");
  expect_refused(file_of("[]", 0), "header starts with \"[\"");
  expect_refused(file_of("", 0), "header starts with \"\"");
  expect_refused(file_of("{\"a\":", 0), "safetensors header: not valid JSON at line 1");
}

TEST(Safetensors, EntriesThatDoNotAddUpAreRefused) {
  expect_refused(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4), "needs 8");
  expect_refused(one(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])", 4), "\"F31\" is unknown");
  expect_refused(one(R"("shape":[1],"data_offsets":[0,4])", 4), "no \"dtype\"");
  expect_refused(one(R"("dtype":"F32","data_offsets":[0,4])", 4), "no list \"shape\"");
  expect_refused(one(R"("dtype":"F32","shape":[1])", 4), "no pair \"data_offsets\"");
  expect_refused(one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", 4), "no integer from 0");
  expect_refused(one(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])", 4), "no integer");
  expect_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", 4), "in order");
  expect_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])", 4), "no pair");
  expect_refused(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 4), "cut short");
  expect_refused(one(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])", 1), "no whole number");
  expect_refused(one(R"("dtype":"I8","shape":[4294967296,4294967296,2],"data_offsets":[0,0])", 0),
                 "exceeds 63 bits");
  expect_refused(one(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])", 0),
                 "no whole number of bytes");
  expect_refused(one(R"("dtype":"I8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])", 1),
                 "9 dimensions");
  expect_refused(file_of(R"({"t":[]})", 0), "described by no object");
}

TEST(Safetensors, OverlapsHolesAndTailsAreRefused) {
  const std::string a = R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},"b":)";
  expect_refused(file_of(a + R"({"dtype":"I8","shape":[4],"data_offsets":[2,6]}})", 6),
                 "begin at byte 2; expected 4");
  expect_refused(file_of(a + R"({"dtype":"I8","shape":[4],"data_offsets":[5,9]}})", 9),
                 "begin at byte 5; expected 4");
  expect_refused(file_of(a + R"({"dtype":"I8","shape":[4],"data_offsets":[4,8]}})", 9),
                 "end at byte 8 of the data, but the file has 9");
}

TEST(Safetensors, ReadsAFileAndNamesItInMistakes) {
  const TempFolder folder;
  const auto path = folder.path() / "model.safetensors";
  ASSERT_TRUE(write_file(path, one(R"("dtype":"I8","shape":[4],"data_offsets":[0,4])", 4)));
  ASSERT_TRUE(read_safetensors(path));
  ASSERT_TRUE(write_file(path, one(R"("dtype":"I8","shape":[4],"data_offsets":[0,4])", 3)));
  const auto cut = read_safetensors(path);
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().message.find(path.string()), std::string::npos);
}

TEST(Safetensors, AFileThatEndsWithItsHeaderIsRead) {
  const auto parsed = parse(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 0));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->tensors[0].bytes, 8);
}

}  // namespace
}  // namespace plimsoll
