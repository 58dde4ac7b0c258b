#include "shared/tokenizer/bpe.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

#include "shared/base/clock.h"
#include "tests/shared/tokenizer/tiny_vocabulary.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

struct Built {
  explicit Built(const TinyVocabulary& tiny, bool ignore_merges = false)
      : vocabulary(*Vocabulary::build(tiny.data())),
        bpe(*Bpe::build(vocabulary, tiny.data(), ignore_merges)) {}
  std::vector<TokenId> encode(std::string_view piece) {
    std::vector<TokenId> out;
    bpe.encode(vocabulary, piece, out);
    return out;
  }
  Vocabulary vocabulary;
  Bpe bpe;
};

// The definition, word for word: again and again, the pair of the lowest rank, leftmost first.
std::vector<std::string> merge_slowly(const TinyVocabulary& tiny, std::string_view piece) {
  std::map<std::string, std::size_t> ranks;
  for (std::size_t i = 0; i < tiny.merges.size(); ++i) ranks.emplace(tiny.merges[i], i);
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  while (true) {
    std::size_t best = parts.size();
    std::size_t best_rank = ranks.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + " " + parts[i + 1]);
      if (found != ranks.end() && found->second < best_rank) {
        best = i;
        best_rank = found->second;
      }
    }
    if (best == parts.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, MergesTheLowestRankFirst) {
  TinyVocabulary tiny;
  const TokenId bc = tiny.merge("b", "c");
  tiny.merge("a", "b");
  const TokenId abc = tiny.merge("a", "bc");
  Built built(tiny);
  EXPECT_EQ(built.encode("abc"), std::vector<TokenId>{abc});
  EXPECT_EQ(built.encode("dbc"), (std::vector<TokenId>{3, bc}));
}

TEST(Bpe, MergesTheLeftmostOfEqualRanks) {
  TinyVocabulary tiny;
  const TokenId aa = tiny.merge("a", "a");
  Built built(tiny);
  EXPECT_EQ(built.encode("aaa"), (std::vector<TokenId>{aa, 0}));
  EXPECT_EQ(built.encode("aaaa"), (std::vector<TokenId>{aa, aa}));
}

TEST(Bpe, AgreesWithTheDefinitionOnRandomVocabularies) {
  for (unsigned seed = 1; seed <= 60 / kBulkDivisor; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    TinyVocabulary tiny;
    std::map<std::string, TokenId> known;
    std::vector<std::string> words = {"a", "b", "c", "d"};
    for (int i = 0; i < 25; ++i) {
      const std::string left = words[random() % words.size()];
      const std::string right = words[random() % words.size()];
      if (known.count(left + right) != 0) continue;
      known[left + right] = tiny.merge(left, right);
      words.push_back(left + right);
    }
    Built built(tiny);
    for (int i = 0; i < 60; ++i) {
      std::string piece;
      for (std::size_t n = 1 + random() % 40; n > 0; --n) {
        piece += static_cast<char>('a' + random() % 4);
      }
      std::vector<TokenId> expected;
      for (const std::string& part : merge_slowly(tiny, piece)) {
        expected.push_back(*built.vocabulary.find(part));
      }
      ASSERT_EQ(built.encode(piece), expected) << piece;
      ASSERT_EQ(built.encode(piece), expected) << piece << " from memory";
    }
  }
}

TEST(Bpe, LeavesOutBytesThatHaveNoToken) {
  TinyVocabulary tiny;
  const TokenId ab = tiny.merge("a", "b");
  Built built(tiny);
  EXPECT_TRUE(built.encode("\x04").empty());
  EXPECT_EQ(built.encode("a\x04z"), (std::vector<TokenId>{0, 25}));
  EXPECT_EQ(built.encode("a\x04"
                         "b"),
            std::vector<TokenId>{ab})
      << "as in the tokenizers that such vocabularies come from";
}

TEST(Bpe, TakesAWholeTokenWithoutMergesWhereTheFamilyDoes) {
  TinyVocabulary tiny;
  const TokenId whole = tiny.add("xyz");
  EXPECT_EQ(Built(tiny, true).encode("xyz"), std::vector<TokenId>{whole});
  EXPECT_EQ(Built(tiny, false).encode("xyz"), (std::vector<TokenId>{23, 24, 25}));
}

TEST(Bpe, TextNeverBecomesAControlToken) {
  TinyVocabulary tiny;
  tiny.merges = {"x y"};
  tiny.add("xy", TokenType::control);
  tiny.add("stop", TokenType::control);
  tiny.tokens[0] = "q";  // so that "a" is left to a control token of one byte
  tiny.add("a", TokenType::control);
  Built built(tiny, true);
  EXPECT_EQ(built.encode("xy"), (std::vector<TokenId>{23, 24}));
  EXPECT_EQ(built.encode("stop"), (std::vector<TokenId>{18, 19, 14, 15}));
  EXPECT_TRUE(built.encode("a").empty());
}

TEST(Bpe, RefusesMergesThatContradictTheVocabulary) {
  const auto refusal = [](const char* merge) {
    TinyVocabulary tiny;
    tiny.merges = {merge};
    const auto refused = Bpe::build(*Vocabulary::build(tiny.data()), tiny.data(), false);
    return refused ? "accepted" : refused.error().message;
  };
  EXPECT_EQ(refusal("ab"),
            "merge 0 of the vocabulary, 'ab', is not two parts with a space between");
  EXPECT_EQ(refusal("a A"), "merge 0 of the vocabulary, 'a A', has a part that is no token");
  EXPECT_EQ(refusal("a b"), "merge 0 of the vocabulary, 'a b', makes no token");
  EXPECT_EQ(refusal("a 日"), "merge 0 of the vocabulary, 'a 日', is not spelled in bytes");
}

TEST(Bpe, AMillionBytesInOnePieceTakeNoQuadraticTime) {
  TinyVocabulary tiny;
  std::string run = "a";
  for (int i = 0; i < 6; ++i) {
    tiny.merge(run, run);
    run += run;
  }
  Built built(tiny);
  const TimePoint start = now();
  constexpr std::size_t kBytes = std::size_t{1} << (kBulkDivisor == 1 ? 20 : 17);
  EXPECT_EQ(built.encode(std::string(kBytes, 'a')).size(), kBytes / 64);
  EXPECT_LT(to_seconds(now() - start), 20.0);  // quadratic: hours
}

}  // namespace
}  // namespace plimsoll
