#include "router/stream/stop_strings.h"

#include <random>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

struct Shown {
  std::string text;
  bool stopped = false;
  bool operator==(const Shown&) const = default;
};

Shown run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings strings(stops);
  Shown shown;
  for (const std::string& piece : pieces) shown.text += strings.push(piece);
  shown.text += strings.finish();
  shown.stopped = strings.stopped();
  return shown;
}

TEST(StopStrings, EndsTheTextBeforeTheString) {
  EXPECT_EQ(run({"END"}, {"abcENDdef", "more"}), (Shown{"abc", true}));
}

TEST(StopStrings, FindsAStringOverManyPieces) {
  EXPECT_EQ(run({"END"}, {"abE", "N", "D"}), (Shown{"ab", true}));
}

TEST(StopStrings, HoldsBackOnlyWhatMayBecomeAString) {
  StopStrings strings({"END"});
  EXPECT_EQ(strings.push("abE"), "ab");
  EXPECT_EQ(strings.push("x"), "Ex");
  EXPECT_EQ(strings.push("EN"), "");
  EXPECT_EQ(strings.finish(), "EN");
  EXPECT_FALSE(strings.stopped());
}

TEST(StopStrings, ShowsAHalfThatTurnedIntoAnotherHalf) {
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b"}), (Shown{"a", true}));
}

TEST(StopStrings, TakesTheStringThatIsCompleteFirst) {
  EXPECT_EQ(run({"cd", "b"}, {"abcd"}), (Shown{"a", true}));
}

TEST(StopStrings, TakesTheLongerOfTwoThatEndTogether) {
  EXPECT_EQ(run({"b", "ab"}, {"xab"}), (Shown{"x", true}));
}

TEST(StopStrings, WithoutStringsNothingIsHeldBack) {
  StopStrings strings({});
  EXPECT_EQ(strings.push("E"), "E");
}

TEST(StopStrings, TheCutIntoPiecesNeverMatters) {
  constexpr std::uint32_t kSeed = 20260101;
  std::mt19937 random(kSeed);
  const auto pick = [&](std::size_t count) { return random() % count; };
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::size_t i = 0; i < 12; ++i) text += static_cast<char>('a' + pick(2));
    std::vector<std::string> stops(1 + pick(2));
    for (std::string& stop : stops) {
      for (std::size_t i = 0; i <= pick(4); ++i) stop += static_cast<char>('a' + pick(2));
    }
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = 1 + pick(4);
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    EXPECT_EQ(run(stops, pieces), run(stops, {text})) << text << " seed " << kSeed;
  }
}

}  // namespace
}  // namespace plimsoll
