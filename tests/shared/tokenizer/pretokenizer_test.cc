#include "shared/tokenizer/pretokenizer.h"

#include <gtest/gtest.h>

#include "shared/base/clock.h"

namespace plimsoll {
namespace {

using Pieces = std::vector<std::string_view>;

Pieces split(std::string_view name, std::string_view text) {
  return Pretokenizer::named(name)->split(text);
}

TEST(Pretokenizer, Gpt2GivesWordsTheirLeadingSpace) {
  EXPECT_EQ(split("gpt-2", "Hello  world's 12 cats!"),
            (Pieces{"Hello", " ", " world", "'s", " 12", " cats", "!"}));
  EXPECT_EQ(split("gpt-2", "a \n "), (Pieces{"a", " \n "}));
}

TEST(Pretokenizer, SmollmIsolatesDigits) {
  EXPECT_EQ(split("smollm", "in 2024."), (Pieces{"in", " ", "2", "0", "2", "4", "."}));
  EXPECT_EQ(split("smollm", "a  1"), (Pieces{"a", "  ", "1"}));
  EXPECT_EQ(split("smollm", "Ⅷ½"), (Pieces{"Ⅷ", "½"}));
}

TEST(Pretokenizer, LlamaTakesDigitsInThreesAndAnyCaseOfContractions) {
  EXPECT_EQ(split("llama-bpe", "it'S 12345"), (Pieces{"it", "'S", " ", "123", "45"}));
  EXPECT_EQ(split("llama-bpe", "a.\n\n b"), (Pieces{"a", ".\n\n", " b"}));
  EXPECT_EQ(split("llama-bpe", "(word"), (Pieces{"(word"}));
  EXPECT_EQ(split("llama-bpe", "  \n x"), (Pieces{"  \n", " x"}));
}

TEST(Pretokenizer, QwenTakesDigitsOneByOne) {
  EXPECT_EQ(split("qwen2", "x 123"), (Pieces{"x", " ", "1", "2", "3"}));
}

TEST(Pretokenizer, WhiteSpaceIsUnicodesOwn) {
  EXPECT_EQ(split("gpt-2", "a\u3000\u00a0\u0085"), (Pieces{"a", "\u3000\u00a0\u0085"}));
  EXPECT_EQ(split("gpt-2", "a \u180e"), (Pieces{"a", " \u180e"})) << "no space since Unicode 6.3";
  EXPECT_EQ(split("gpt-2", "a\u200b"), (Pieces{"a", "\u200b"}));
}

TEST(Pretokenizer, KeepsEveryByte) {
  using std::string_literals::operator""s;
  const std::string text = "\0 a\0\x7f\n\u0301e\u0301 \U0010ffff"s;
  for (const char* name : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    std::string joined;
    for (const auto piece : split(name, text)) joined += piece;
    EXPECT_EQ(joined, text) << name;
    EXPECT_TRUE(split(name, "").empty());
  }
}

TEST(Pretokenizer, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto refused = Pretokenizer::named("bert-bge");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("'bert-bge'"), std::string::npos);
  EXPECT_NE(refused.error().message.find("smollm, gpt-2, llama-bpe, qwen2"), std::string::npos);
  EXPECT_NE(Pretokenizer::named("").error().message.find("not named"), std::string::npos);
}

TEST(Pretokenizer, BytesThatAreNotUtf8AreNeverMatched) {
  for (const char* name : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    for (const std::string text : {"ab\xC3", "\xF0\x9F", "a\xE2\x80", "\x80\x80", "\xFF b"}) {
      std::string joined;
      for (const auto piece : split(name, text)) joined += piece;
      EXPECT_EQ(joined, text) << name;
    }
  }
  EXPECT_EQ(split("gpt-2", "ab\xC3"), (Pieces{"a", "b", "\xC3"}));
}

TEST(Pretokenizer, LongRunsTakeLinearTime) {
  std::string mixed_spaces;
  for (int i = 0; i < 100'000; ++i) mixed_spaces += " \n\t";
  std::vector<std::string> texts = {mixed_spaces + "x", mixed_spaces + "  "};
  for (const char c : {'a', ' ', '!', '\n', '7', '\''}) {
    texts.emplace_back(300'000, c);
    texts.push_back(texts.back() + "x");
  }
  for (const char* name : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    for (const std::string& text : texts) {
      const TimePoint start = now();
      EXPECT_FALSE(split(name, text).empty());
      EXPECT_LT(to_seconds(now() - start), 10.0) << name << " " << text.substr(0, 5);
    }
  }
}

}  // namespace
}  // namespace plimsoll
