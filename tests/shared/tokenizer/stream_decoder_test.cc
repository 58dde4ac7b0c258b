#include "shared/tokenizer/stream_decoder.h"

#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "tests/shared/tokenizer/tiny_vocabulary.h"

namespace plimsoll {
namespace {

class StreamDecoderTest : public ::testing::Test {
 protected:
  StreamDecoderTest() {
    for (const char* token : {"ð", "Ł", "ĺ", "Ģ", "Ã", "©"}) last_ = tiny_.add(token);
    control_ = tiny_.add("<|im_end|>", TokenType::control);
    auto built = Tokenizer::from_data(tiny_.data());
    tokenizer_.emplace(std::move(*built));
  }
  TinyVocabulary tiny_;
  TokenId last_ = 0;
  TokenId control_ = 0;
  std::optional<Tokenizer> tokenizer_;
};

TEST_F(StreamDecoderTest, HoldsACharacterBackUntilItIsComplete) {
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.push(0), "a");
  EXPECT_EQ(decoder.push(28), "");
  EXPECT_EQ(decoder.push(29), "");
  EXPECT_EQ(decoder.push(30), "");
  EXPECT_EQ(decoder.push(31), "😀");
  EXPECT_EQ(decoder.finish(), "");
}

TEST_F(StreamDecoderTest, AnUnfinishedCharacterBecomesAReplacementAtTheEnd) {
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.push(32), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
}

TEST_F(StreamDecoderTest, InvalidBytesAreReplacedOnce) {
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.push(28), "");
  EXPECT_EQ(decoder.push(29), "");
  EXPECT_EQ(decoder.push(0), "\uFFFDa");
  EXPECT_EQ(decoder.push(33), "\uFFFD");
}

TEST_F(StreamDecoderTest, ControlTokensAndUnknownIdsGiveNoText) {
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.push(control_), "");
  EXPECT_EQ(decoder.push(-1), "");
  EXPECT_EQ(decoder.push(100'000), "");
  EXPECT_EQ(decoder.push(32), "");
  EXPECT_EQ(decoder.push(control_), "");
  EXPECT_EQ(decoder.push(33), "é");
}

TEST_F(StreamDecoderTest, StreamsWhatDecodeSaysForAnyIds) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids;
    for (std::size_t n = random() % 12; n > 0; --n) {
      ids.push_back(static_cast<TokenId>(24 + random() % 12));
    }
    StreamDecoder decoder(*tokenizer_);
    std::string text;
    for (const TokenId id : ids) text += decoder.push(id);
    text += decoder.finish();
    ASSERT_EQ(text, tokenizer_->decode(ids, false)) << "round " << round;
  }
}

}  // namespace
}  // namespace plimsoll
