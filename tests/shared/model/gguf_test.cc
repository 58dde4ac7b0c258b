#include "shared/model/gguf.h"

#include <gtest/gtest.h>

#include "tests/support/gguf_bytes.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

GgufBytes typed_file() {
  GgufBytes file;
  file.start(0, 6).int_pair("int", 7).text_pair("text", "words");
  file.text("float").u32(6).number(0.5F);
  file.text("bool").u32(7).number(std::uint8_t{1});
  file.text("ints").u32(9).u32(4).u64(2).u32(1).u32(2);
  file.text("texts").u32(9).u32(8).u64(1).text("one");
  return file;
}

TEST(GgufFile, LooksUpValuesByTheirType) {
  const GgufBytes bytes = typed_file();
  const auto file = GgufFile::parse(bytes.bytes());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->required_int("int").value(), 7);
  EXPECT_EQ(file->required_string("text").value(), "words");
  EXPECT_EQ(file->required_float("float").value(), 0.5);
  EXPECT_EQ(file->bool_or("bool", false).value(), true);
  EXPECT_EQ(*file->ints("ints").value(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(*file->strings("texts").value(), (std::vector<std::string>{"one"}));
}

TEST(GgufFile, AnAbsentKeyGivesTheFallbackOrAnError) {
  const GgufBytes bytes = typed_file();
  const auto file = GgufFile::parse(bytes.bytes());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->int_or("none", 3).value(), 3);
  EXPECT_EQ(file->float_or("none", 0.25).value(), 0.25);
  EXPECT_EQ(file->bool_or("none", true).value(), true);
  EXPECT_EQ(file->string_or("none", "x").value(), "x");
  EXPECT_EQ(file->strings("none").value(), nullptr);
  EXPECT_EQ(file->floats("none").value(), nullptr);
  const auto missing = file->required_int("none");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::not_found);
  EXPECT_EQ(missing.error().message, "GGUF metadata none is missing; expected an integer");
}

TEST(GgufFile, AnotherTypeIsAnErrorThatNamesBoth) {
  const GgufBytes bytes = typed_file();
  const auto file = GgufFile::parse(bytes.bytes());
  ASSERT_TRUE(file) << file.error().message;
  const auto text = file->int_or("text", 1);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::invalid);
  EXPECT_EQ(text.error().message, "GGUF metadata text is a string; expected an integer");
  const auto ints = file->strings("ints");
  ASSERT_FALSE(ints);
  EXPECT_EQ(ints.error().message,
            "GGUF metadata ints is an array of integers; expected an array of strings");
}

TEST(GgufFile, GivesTheBytesOfAWeight) {
  GgufBytes bytes;
  bytes.start(1, 0).tensor("a", {2}, 0, 32).pad().zeros(32).number(1.5F).number(-2.0F);
  const auto file = GgufFile::parse(bytes.bytes());
  ASSERT_TRUE(file) << file.error().message;
  const auto stored = file->bytes_of(*file->weights().find("a"));
  ASSERT_EQ(stored.size(), 8U);
  float values[2];
  std::memcpy(values, stored.data(), sizeof values);
  EXPECT_EQ(values[0], 1.5F);
  EXPECT_EQ(values[1], -2.0F);
}

TEST(GgufFile, ErrorsNameTheFile) {
  const auto absent = GgufFile::open("/nonexistent/model.gguf");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::not_found);
  EXPECT_NE(absent.error().message.find("/nonexistent/model.gguf"), std::string::npos);
  const auto other = GgufFile::open(golden_path("dequantise/F16.bin"));
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("F16.bin: GGUF header, byte 0: not a GGUF file"),
            std::string::npos)
      << other.error().message;
}

TEST(GgufFile, ReadsTheDefaultModelsHeader) {
  SKIP_WITHOUT(default_model_path());
  const auto file = GgufFile::open(default_model_path());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->file().bytes().size(), 98362432U);
  EXPECT_EQ(file->weights().all().size(), 272U);
  EXPECT_EQ(file->weights().bytes(), 96576768);
  EXPECT_EQ(file->weights().find("token_embd.weight")->offset, 1785664U);
  EXPECT_EQ(file->strings("tokenizer.ggml.tokens").value()->size(), 49152U);
  EXPECT_EQ(file->strings("tokenizer.ggml.merges").value()->size(), 48900U);
  EXPECT_EQ(file->required_string("tokenizer.ggml.pre").value(), "smollm");
}

TEST(GgufFile, SurvivesAMove) {
  const GgufBytes bytes = typed_file();
  auto parsed = GgufFile::parse(bytes.bytes());
  ASSERT_TRUE(parsed) << parsed.error().message;
  GgufFile moved = std::move(*parsed);
  EXPECT_EQ(moved.required_int("int").value(), 7);
}

}  // namespace
}  // namespace plimsoll
