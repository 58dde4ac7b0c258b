#include "shared/tokenizer/spm.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/tokenizer/tokenizer.h"

namespace plimsoll {
namespace {

// A vocabulary as SentencePiece makes them: bytes first, then characters, then merges.
class TinySpm {
 public:
  TinySpm() {
    add("<unk>", TokenType::unknown, 0);
    add("<bos>", TokenType::control, 0);
    add("<0x0A>", TokenType::byte, 0);
    add("<0xC3>", TokenType::byte, 0);
    add("<0xA9>", TokenType::byte, 0);
    double score = -100;
    for (const char* piece : {"a", "b", "c", kMark}) add(piece, TokenType::normal, score--);
    add("ab", TokenType::normal, -2);
    add("bc", TokenType::normal, -1);
    add("\xE2\x96\x81"
        "a",
        TokenType::normal, -3);
    add("\xE2\x96\x81\xE2\x96\x81", TokenType::user_defined, 0);
  }

  void add(const std::string& text, TokenType type, double score) {
    tokens_.push_back(text);
    types_.push_back(static_cast<std::int64_t>(type));
    scores_.push_back(score);
  }
  TokenizerData data() const {
    TokenizerData data;
    data.model = "llama";
    data.tokens = tokens_;
    data.types = types_;
    data.scores = scores_;
    data.bos = 1;
    data.add_space_prefix = space_prefix;
    return data;
  }
  std::vector<std::string> texts(const std::vector<TokenId>& ids) const {
    std::vector<std::string> texts;
    for (const TokenId id : ids) texts.push_back(tokens_[static_cast<std::size_t>(id)]);
    return texts;
  }
  std::vector<std::string> encode(std::string_view text, bool add_bos = false) const {
    auto tokenizer = Tokenizer::from_data(data());
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return texts(tokenizer->encode(text, false, add_bos));
  }

  static constexpr const char* kMark = "\xE2\x96\x81";
  bool space_prefix = false;

 private:
  std::vector<std::string> tokens_;
  std::vector<std::int64_t> types_;
  std::vector<double> scores_;
};

using Texts = std::vector<std::string>;
const std::string kMark = TinySpm::kMark;

TEST(Spm, MergesTheHighestScoreFirst) { EXPECT_EQ(TinySpm().encode("abc"), (Texts{"a", "bc"})); }

TEST(Spm, OfEqualScoresTheLeftmostGoesFirst) {
  TinySpm tiny;
  tiny.add("aa", TokenType::normal, -1);
  EXPECT_EQ(tiny.encode("aaa"), (Texts{"aa", "a"}));
}

TEST(Spm, ASpaceIsACharacterThatMerges) {
  EXPECT_EQ(TinySpm().encode("b a"), (Texts{"b", kMark + "a"}));
  EXPECT_EQ(TinySpm().encode("b" + kMark + "a"), (Texts{"b", kMark + "a"}));
}

TEST(Spm, UserDefinedTokensAreFoundBeforeAnythingMerges) {
  EXPECT_EQ(TinySpm().encode("b  a"), (Texts{"b", kMark + kMark, "a"}));
}

TEST(Spm, CharactersWithoutATokenBecomeTheirBytesAndThoseWithoutBytesUnknown) {
  EXPECT_EQ(TinySpm().encode("a\n\xC3\xA9"), (Texts{"a", "<0x0A>", "<0xC3>", "<0xA9>"}));
  EXPECT_EQ(TinySpm().encode("a\xC3\xBC"
                             "b"),
            (Texts{"a", "<0xC3>", "<unk>", "b"}));
}

TEST(Spm, AFileMayAskForASpaceBeforeTheText) {
  TinySpm tiny;
  tiny.space_prefix = true;
  EXPECT_EQ(tiny.encode("a"), (Texts{kMark + "a"}));
  EXPECT_EQ(tiny.encode(""), Texts());
}

TEST(Spm, TheSpaceThatWasPutBeforeTheTextIsTakenAwayAgain) {
  TinySpm tiny;
  tiny.space_prefix = true;
  auto tokenizer = Tokenizer::from_data(tiny.data());
  ASSERT_TRUE(tokenizer);
  for (const std::string text : {"abc a b", " a", "\nb", " ", ""}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, false, true), false), text);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, false, true), true), "<bos>" + text);
  }
}

TEST(Spm, BeginsWithBosUnlessTheFileSaysOtherwise) {
  EXPECT_EQ(TinySpm().encode("a", true), (Texts{"<bos>", "a"}));
}

TEST(Spm, TokensGiveBackTheTextThatTheyWereMadeOf) {
  const auto tokenizer = Tokenizer::from_data(TinySpm().data());
  ASSERT_TRUE(tokenizer);
  auto encoder = Tokenizer::from_data(TinySpm().data());
  for (const std::string text : {"abc a  b", "a\nb", "\xC3\xA9", "   "}) {
    EXPECT_EQ(tokenizer->decode(encoder->encode(text, false, true), false), text);
  }
}

TEST(Spm, RefusesScoresThatAreMissingOrNoNumbers) {
  const TinySpm tiny;
  TokenizerData data = tiny.data();
  data.scores = data.scores.first(3);
  const auto fewer = Tokenizer::from_data(data);
  ASSERT_FALSE(fewer);
  EXPECT_NE(fewer.error().message.find("3 scores"), std::string::npos);
  TinySpm odd;
  odd.add("x", TokenType::normal, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(Tokenizer::from_data(odd.data()));
}

TEST(Spm, ALongTextTakesNoLongerThanItsLength) {
  TinySpm tiny;
  std::string run;
  for (int length = 2; length <= 64; length *= 2) {
    tiny.add(std::string(static_cast<std::size_t>(length), 'a'), TokenType::normal, -length);
  }
  const auto ids = tiny.encode(std::string(200'000, 'a'));
  EXPECT_EQ(ids.size(), 200'000U / 64);
}

}  // namespace
}  // namespace plimsoll
