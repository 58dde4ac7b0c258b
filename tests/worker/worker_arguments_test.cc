#include "worker/worker_arguments.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(WorkerArguments, AreCheckedByName) {
  using Words = std::vector<std::string>;
  const auto good = parse_worker_arguments(Words{"--control", "ipc:///run/control", "--instance",
                                                 "abc", "--replica", "1", "--rank", "2"});
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->control, "ipc:///run/control");
  EXPECT_EQ(good->instance, "abc");
  EXPECT_EQ(good->replica, 1);
  EXPECT_EQ(good->rank, 2);
  for (const Words& words :
       {Words{}, Words{"--control"}, Words{"--control", "x", "--rank", "-1"},
        Words{"--control", "x", "--rank", "1x"}, Words{"--control", "x", "--color", "red"}}) {
    const auto bad = parse_worker_arguments(words);
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().code, Code::invalid);
  }
}

}  // namespace
}  // namespace plimsoll
