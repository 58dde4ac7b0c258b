#include "tools/tiny_model/gguf_writer.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(GgufWriter, WhatItWritesIsReadBack) {
  const std::vector<std::pair<std::string, GgufValue>> metadata = {
      {"bool", true},
      {"int", std::int64_t{-5}},
      {"unsigned", std::int64_t{4000000000}},
      {"long", std::int64_t{1} << 40},
      {"float", 0.5},
      {"text", std::string("wörds\0", 7)},
      {"bools", std::vector<bool>{true, false}},
      {"ints", std::vector<std::int64_t>{-1, 2}},
      {"longs", std::vector<std::int64_t>{1, std::int64_t{1} << 40}},
      {"floats", std::vector<double>{0.25, -8}},
      {"texts", std::vector<std::string>{"a", ""}},
  };
  GgufWriter writer;
  for (const auto& [key, value] : metadata) writer.add(key, value);
  const std::string bytes = writer.file();
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata().size(), metadata.size());
  for (const auto& [key, value] : metadata) {
    ASSERT_NE(file->find(key), nullptr) << key;
    EXPECT_EQ(*file->find(key), value) << key;
  }
}

TEST(GgufWriter, WeightsKeepTheirBytes) {
  GgufWriter writer;
  std::vector<std::byte> odd(36);
  for (std::size_t i = 0; i < odd.size(); ++i) odd[i] = static_cast<std::byte>(i);
  const std::vector<std::byte> other(8, std::byte{9});
  writer.add_weight("odd", DType::q4_0, {2, 32}, odd);
  writer.add_weight("other", DType::f32, {2}, other);
  const std::string bytes = writer.file();
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file) << file.error().message;
  const WeightInfo* weight = file->weights().find("odd");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->shape, (std::vector<std::int64_t>{2, 32}));
  EXPECT_TRUE(std::ranges::equal(file->bytes_of(*weight), odd));
  EXPECT_TRUE(std::ranges::equal(file->bytes_of(*file->weights().find("other")), other));
}

TEST(GgufWriterDeathTest, RefusesBlocksOfAnotherLength) {
  GgufWriter writer;
  EXPECT_DEATH(writer.add_weight("a", DType::f32, {2}, std::vector<std::byte>(7)), "CHECK failed");
}

}  // namespace
}  // namespace plimsoll
