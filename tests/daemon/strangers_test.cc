#include "daemon/strangers.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Strangers, EachIsNewsOnceAndAtMostSoMany) {
  Strangers strangers;
  std::size_t news = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string peer = "peer " + std::to_string(i);
    if (strangers.is_news(peer)) ++news;
    EXPECT_FALSE(strangers.is_news(peer));
  }
  EXPECT_EQ(news, Strangers::kPeersMax);
}

TEST(Strangers, OurOwnAreNeverNews) {
  Strangers strangers;
  strangers.acquaint("worker");
  EXPECT_FALSE(strangers.is_news("worker"));
  EXPECT_TRUE(strangers.is_news("other"));
}

}  // namespace
}  // namespace plimsoll
