#include "daemon/router_child.h"

#include <csignal>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr TimePoint kStart = TimePoint() + seconds(100);

class RouterChildTest : public ::testing::Test {
 protected:
  RouterChildTest() : router_({.plan = &plan_, .seed = 1, .starts_max = 2}) {}
  void listen() {
    router_.start(1, kStart, out_);
    router_.child_started(42);
    router_.hello("peer", kStart, out_);
    router_.said(Listening{"http://x"}, kStart, out_);
  }

  LaunchPlan plan_;
  RouterChild router_;
  Actions out_;
};

TEST_F(RouterChildTest, IsSetUpAfterItsHello) {
  plan_.served_model_name = "small";
  plan_.context_length = 512;
  listen();
  EXPECT_EQ(router_.state(), RouterState::listening);
  const auto& setup = std::get<RouterSetup>(std::get<Send>(out_.back()).message);
  EXPECT_EQ(setup.served_model_name, "small");
  EXPECT_EQ(setup.context_length, 512);
}

TEST_F(RouterChildTest, ADeathIsNamedWithoutARank) {
  listen();
  router_.child_exited({true, SIGSEGV}, kStart, out_);
  EXPECT_EQ(router_.state(), RouterState::waiting);
  EXPECT_EQ(router_.take_cause()->message, "router (pid 42) was killed by SIGSEGV");
  EXPECT_EQ(router_.pid(), 0);
}

TEST_F(RouterChildTest, ItsLastWordsAreWaitedForAShortTime) {
  listen();
  router_.child_exited({false, 1}, kStart, out_);
  EXPECT_EQ(router_.state(), RouterState::dying);
  router_.said(Fault{"internal", "out of ideas"}, kStart, out_);
  EXPECT_EQ(router_.take_cause()->message, "router (pid 42) failed: out of ideas");
}

TEST_F(RouterChildTest, SilenceAfterItsFiguresIsAHang) {
  listen();
  EXPECT_FALSE(router_.next_deadline()) << "it has not begun to report";
  router_.said(RouterStats{}, kStart, out_);
  out_.clear();
  router_.tick(*router_.next_deadline(), out_);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(std::get<Kill>(out_[0]).signal, SIGKILL);
  router_.child_exited({true, SIGKILL}, kStart, out_);
  EXPECT_NE(router_.take_cause()->message.find("hangs"), std::string::npos);
}

TEST_F(RouterChildTest, ADrainBeforeItsHelloIsASignal) {
  router_.start(1, kStart, out_);
  router_.drain({.deadline = milliseconds(100)}, out_);
  EXPECT_EQ(std::get<Kill>(out_.back()).signal, SIGTERM);
  router_.child_exited({true, SIGTERM}, kStart, out_);
  EXPECT_EQ(router_.state(), RouterState::idle);
}

}  // namespace
}  // namespace plimsoll
