#include "shared/tokenizer/tokenizer_data.h"

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

TEST(TokenizerData, ReadsTheDefaultModel) {
  SKIP_WITHOUT(default_model_path());
  const auto file = GgufFile::open(default_model_path());
  ASSERT_TRUE(file) << file.error().message;
  const auto data = tokenizer_data(*file);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->model, "gpt2");
  EXPECT_EQ(data->pre, "smollm");
  EXPECT_EQ(data->tokens.size(), 49152U);
  EXPECT_EQ(data->types.size(), 49152U);
  EXPECT_EQ(data->merges.size(), 48900U);
  EXPECT_EQ(data->bos, 1);
  EXPECT_EQ(data->eos, 2);
  EXPECT_EQ(data->eot, std::nullopt);
  EXPECT_EQ(data->add_bos, false);
}

TEST(TokenizerData, AFileWithoutATokenizerIsRefused) {
  // GGUF version 3 without tensors and without metadata.
  static constexpr std::string_view kEmpty("GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
  const auto file = GgufFile::parse(std::as_bytes(std::span(kEmpty)));
  ASSERT_TRUE(file) << file.error().message;
  const auto data = tokenizer_data(*file);
  ASSERT_FALSE(data);
  EXPECT_NE(data.error().message.find("tokenizer.ggml.model"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
