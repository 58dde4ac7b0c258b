#include "shared/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include "tests/shared/tokenizer/tiny_vocabulary.h"

namespace plimsoll {
namespace {

class AddedTokensTest : public ::testing::Test {
 protected:
  // "position+length=id", or "none".
  std::string find(std::string_view text, bool with_control, std::size_t from = 0) {
    const auto vocabulary = Vocabulary::build(tiny_.data());
    const auto found = AddedTokens::build(*vocabulary)->find(text, from, with_control);
    if (!found) return "none";
    return std::to_string(found->position) + "+" + std::to_string(found->length) + "=" +
           tiny_.tokens[static_cast<std::size_t>(found->id)];
  }
  TinyVocabulary tiny_;
};

TEST_F(AddedTokensTest, TheLongestAtAPlaceIsTaken) {
  tiny_.add("<|end|>", TokenType::control);
  tiny_.add("<|end|>x", TokenType::control);
  EXPECT_EQ(find("a<|end|>", true), "1+7=<|end|>");
  EXPECT_EQ(find("a<|end|>x", true), "1+8=<|end|>x");
  EXPECT_EQ(find("<|end|", true), "none");
}

TEST_F(AddedTokensTest, ControlTokensNeedTrust) {
  tiny_.add("<|end|>", TokenType::control);
  tiny_.add("<unk>", TokenType::unknown);
  tiny_.add("<tool>", TokenType::user_defined);
  EXPECT_EQ(find("<|end|>", false), "none");
  EXPECT_EQ(find("<unk>", false), "none");
  EXPECT_EQ(find("<unk>", true), "0+5=<unk>");
  EXPECT_EQ(find("<|end|><tool>", false), "7+6=<tool>");
}

TEST_F(AddedTokensTest, AShorterTextTokenIsFoundInsideALongerControlToken) {
  tiny_.add("<tool>!", TokenType::control);
  tiny_.add("<tool>", TokenType::user_defined);
  EXPECT_EQ(find("<tool>!", false), "0+6=<tool>");
  EXPECT_EQ(find("<tool>!", true), "0+7=<tool>!");
}

TEST_F(AddedTokensTest, SearchesFromAPlace) {
  tiny_.add("--", TokenType::user_defined);
  EXPECT_EQ(find("----", false, 1), "1+2=--");
  EXPECT_EQ(find("--", false, 2), "none");
  EXPECT_EQ(find("", false), "none");
}

TEST_F(AddedTokensTest, AnEndlessTokenIsRefused) {
  tiny_.add(std::string(2000, 'x'), TokenType::user_defined);
  const auto vocabulary = Vocabulary::build(tiny_.data());
  EXPECT_EQ(AddedTokens::build(*vocabulary).error().message,
            "added token 28 has 2000 bytes; at most 1024 work");
}

TEST_F(AddedTokensTest, OneThatWouldMatchInsideACharacterIsRefused) {
  tiny_.add("\xA9", TokenType::user_defined);
  auto vocabulary = Vocabulary::build(tiny_.data());
  auto refused = AddedTokens::build(*vocabulary);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "added token 28 (\"\xEF\xBF\xBD\") is not valid UTF-8; control and user-defined "
            "tokens must be");
  tiny_.tokens.back() = "\xC3";
  vocabulary = Vocabulary::build(tiny_.data());
  EXPECT_FALSE(AddedTokens::build(*vocabulary));
}

TEST_F(AddedTokensTest, AnEmptyOneIsRefused) {
  tiny_.add("", TokenType::control);
  const auto vocabulary = Vocabulary::build(tiny_.data());
  const auto refused = AddedTokens::build(*vocabulary);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("added token 28 is empty"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
