#include "shared/tokenizer/byte_tokenizer.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(ByteTokenizer, ATokenIsAByteAndTheRestShowsItsNumber) {
  Result<Tokenizer> tokenizer = make_byte_tokenizer(163'840);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 163'840);
  const std::string text = "Hi \n\xC3\xA9 <300>";
  std::vector<TokenId> bytes;
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  EXPECT_EQ(tokenizer->encode(text, false, true), bytes);
  EXPECT_EQ(tokenizer->decode(bytes, false), text);
  EXPECT_EQ(tokenizer->decode({72, 300, 163'839}, false), "H<300><163839>");
}

TEST(ByteTokenizer, NothingEndsAnAnswer) {
  const Result<Tokenizer> tokenizer = make_byte_tokenizer(1000);
  ASSERT_TRUE(tokenizer);
  EXPECT_TRUE(tokenizer->stop_ids().empty());
  EXPECT_FALSE(tokenizer->eos());
  EXPECT_FALSE(tokenizer->adds_bos());
}

TEST(ByteTokenizer, AVocabularyWithoutRoomForBytesIsRefused) {
  EXPECT_FALSE(make_byte_tokenizer(255));
  EXPECT_TRUE(make_byte_tokenizer(256));
}

}  // namespace
}  // namespace plimsoll
