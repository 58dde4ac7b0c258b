#include "shared/tokenizer/vocabulary.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/shared/tokenizer/tiny_vocabulary.h"

namespace plimsoll {
namespace {

std::string spelled(std::string_view spelling) {
  std::string out;
  return append_spelled_bytes(spelling, out) ? out : "no bytes";
}

TEST(Vocabulary, ReadsTheByteAlphabet) {
  EXPECT_EQ(spelled("Ġthe"), " the");
  EXPECT_EQ(spelled("Ċ"), "\n");
  EXPECT_EQ(spelled("Ã©"), "\xC3\xA9");
  EXPECT_EQ(spelled("Ā"), std::string(1, '\0'));
  EXPECT_EQ(spelled("Ń"), "\xAD");  // the last of the 68
  EXPECT_EQ(spelled("!~¡¬®ÿ"), "!~\xA1\xAC\xAE\xFF");
}

TEST(Vocabulary, RefusesWhatIsNotInTheByteAlphabet) {
  for (const char* text : {" ", "a b", "\n", "\xC2\xAD", "ń", "日", "\xC4", "\xFF", "\x7F"}) {
    EXPECT_EQ(spelled(text), "no bytes") << text;
  }
}

TEST(Vocabulary, EveryByteHasExactlyOneSpelling) {
  std::string all;
  for (unsigned character = 0; character < 0x200; ++character) {
    std::string utf8;
    if (character < 0x80) {
      utf8 += static_cast<char>(character);
    } else {
      utf8 += static_cast<char>(0xC0 | (character >> 6));
      utf8 += static_cast<char>(0x80 | (character & 0x3F));
    }
    append_spelled_bytes(utf8, all);
  }
  ASSERT_EQ(all.size(), 256U);
  std::sort(all.begin(), all.end(), [](char a, char b) {
    return static_cast<unsigned char>(a) < static_cast<unsigned char>(b);
  });
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(static_cast<unsigned char>(all[i]), i);
}

TEST(Vocabulary, FindsTokensByTheirBytes) {
  TinyVocabulary tiny;
  const TokenId the = tiny.add("Ġthe");
  const TokenId control = tiny.add("<|x|>", TokenType::control);
  const TokenId spaces = tiny.add("  ", TokenType::user_defined);
  const auto vocabulary = Vocabulary::build(tiny.data());
  ASSERT_TRUE(vocabulary);
  EXPECT_EQ(vocabulary->find(" the"), the);
  EXPECT_EQ(vocabulary->bytes(the), " the");
  EXPECT_EQ(vocabulary->find("a"), 0);
  EXPECT_EQ(vocabulary->find("Ġthe"), std::nullopt);
  EXPECT_EQ(vocabulary->find(""), std::nullopt);
  EXPECT_TRUE(vocabulary->is_control(control));
  EXPECT_FALSE(vocabulary->is_control(the));
  EXPECT_FALSE(vocabulary->is_control(-1));
  EXPECT_FALSE(vocabulary->is_control(10'000));
  EXPECT_EQ(vocabulary->bytes(spaces), "  ");
  EXPECT_EQ(vocabulary->find("  "), std::nullopt) << "it is no product of merges";
}

TEST(Vocabulary, TheFirstOfEqualTokensIsTheOne) {
  TinyVocabulary tiny;
  const TokenId first = tiny.add("twice");
  tiny.add("twice");
  const auto vocabulary = Vocabulary::build(tiny.data());
  ASSERT_TRUE(vocabulary);
  EXPECT_EQ(vocabulary->find("twice"), first);
}

TEST(Vocabulary, RefusesContradictions) {
  TinyVocabulary tiny;
  tiny.types.pop_back();
  auto refused = Vocabulary::build(tiny.data());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the vocabulary has 28 tokens but 27 token types");
  tiny.types.push_back(9);
  refused = Vocabulary::build(tiny.data());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "token 27 of the vocabulary has type 9; types are 1 to 6");
  EXPECT_FALSE(Vocabulary::build(TokenizerData()));
}

}  // namespace
}  // namespace plimsoll
