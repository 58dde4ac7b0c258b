#include "shared/base/text.h"

#include <random>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Parts = std::vector<std::string_view>;

TEST(Text, TrimsAsciiWhiteSpaceOnly) {
  EXPECT_EQ(trim(" \t\r\n a b \v\f"), "a b");
  EXPECT_EQ(trim("\u00a0a"), "\u00a0a");
  EXPECT_EQ(trim("  "), "");
}

TEST(Text, SplitsIntoOneMorePartThanSeparators) {
  EXPECT_EQ(split("a,,b", ','), (Parts{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (Parts{""}));
  EXPECT_EQ(split(",", ','), (Parts{"", ""}));
}

TEST(Text, JoinUndoesSplit) {
  const std::vector<std::string> parts = {"a", "", "b"};
  EXPECT_EQ(join(parts, ", "), "a, , b");
  EXPECT_EQ(join({}, ", "), "");
}

TEST(Text, LowersAsciiOnly) { EXPECT_EQ(lower("AbC ÀZ"), "abc Àz"); }

TEST(Text, FindsTheNearestWordThatCanBeMeant) {
  static constexpr std::string_view kWords[] = {"threads", "host", "port"};
  EXPECT_EQ(nearest("thread", kWords), "threads");
  EXPECT_EQ(nearest("prot", kWords), "port");
  EXPECT_EQ(nearest("quantisation", kWords), "");
}

TEST(Text, KnowsWellFormedUtf8) {
  for (const char* good : {"", "a", "é", "日", "😀", "\uFFFD", "\U0010FFFF"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xC0\xAF", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xFF"}) {
    EXPECT_FALSE(is_utf8(bad)) << to_valid_utf8(bad);
  }
}

TEST(Text, ReplacesOneMaximalSubpartAtATime) {
  EXPECT_EQ(to_valid_utf8("a\xF0\x9F\x98z"), "a\uFFFDz");
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(to_valid_utf8("good é"), "good é");
}

TEST(Text, ACompletePrefixEndsAtACharacter) {
  EXPECT_EQ(complete_utf8_prefix("aé"), 3U);
  EXPECT_EQ(complete_utf8_prefix("a\xC3"), 1U);
  EXPECT_EQ(complete_utf8_prefix("\xF0\x9F\x98"), 0U);
  EXPECT_EQ(complete_utf8_prefix("a\xFF"), 2U) << "what can never be finished is complete";
  EXPECT_EQ(complete_utf8_prefix("\xF5\x80"), 2U);
  EXPECT_EQ(complete_utf8_prefix("\x80\x80\x80\x80"), 4U);
}

TEST(Text, CuttingAtCompletePrefixesChangesNothing) {
  constexpr unsigned kSeed = 20241129;
  std::mt19937 random(kSeed);
  static constexpr std::string_view kBytes =
      "a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80\xFF\xED\xF4\x90";
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    std::string held;
    std::string streamed;
    for (std::size_t n = random() % 12; n > 0; --n) {
      const char byte = kBytes[random() % kBytes.size()];
      text += byte;
      held += byte;
      const std::size_t complete = complete_utf8_prefix(held);
      streamed += to_valid_utf8(held.substr(0, complete));
      held.erase(0, complete);
      ASSERT_LE(held.size(), 3U);
    }
    ASSERT_EQ(streamed + to_valid_utf8(held), to_valid_utf8(text)) << "seed " << kSeed;
  }
}

}  // namespace
}  // namespace plimsoll
