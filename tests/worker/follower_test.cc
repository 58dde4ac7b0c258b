#include "worker/follower.h"

#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/worker/rank_group.h"

namespace plimsoll {
namespace {

// Two ranks; the test itself is rank 0.
class FollowerTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto model = write_tiny_model({}, folder_.path());
    ASSERT_TRUE(model) << model.error().message;
    group_.emplace(RankGroup::Options{.model = *model, .ranks = 2});
    ASSERT_FALSE(HasFatalFailure());
    publisher_.emplace(group_->segment(), StepPublisher::Options{});
    receiver_.emplace(group_->segment(), StepReceiver::Options{});
    follower_.emplace(Follower::Parts{.engine = &group_->rank(1).engine(),
                                      .collective = &group_->rank(1).collective(),
                                      .receiver = &*receiver_,
                                      .limits = group_->rank(1).engine().step_limits()});
  }

  StepPlan three_tokens() const {
    StepPlan plan;
    append_rows(plan, {.tokens = tokens_, .begin = 0, .end = 3, .logit_rows = 1});
    return plan;
  }

  void publish(StepKind kind, const StepPlan& plan) {
    std::vector<std::byte> bytes;
    encode_step(kind, plan, bytes);
    ASSERT_TRUE(publisher_->publish(bytes));
  }

  const std::vector<std::int32_t> tokens_ = {5, 6, 7};
  TempFolder folder_;
  std::optional<RankGroup> group_;
  std::optional<StepPublisher> publisher_;
  std::optional<StepReceiver> receiver_;
  std::optional<Follower> follower_;
};

TEST_F(FollowerTest, ReturnsWhenNothingComes) {
  const auto followed = follower_->follow(milliseconds(1));
  ASSERT_TRUE(followed);
  EXPECT_EQ(*followed, Followed::nothing);
}

TEST_F(FollowerTest, RunsAStepTogetherWithRankZero) {
  publish(StepKind::run, three_tokens());
  std::thread leader([&] { EXPECT_TRUE(group_->rank(0).engine().run(three_tokens())); });
  const auto followed = follower_->follow(seconds(20));
  leader.join();
  ASSERT_TRUE(followed) << followed.error().message;
  EXPECT_EQ(*followed, Followed::step);
  EXPECT_EQ(follower_->steps(), 1);
}

TEST_F(FollowerTest, AStopIsMetByAllRanks) {
  publish(StepKind::stop, {});
  std::thread leader([&] { EXPECT_TRUE(group_->rank(0).collective().barrier()); });
  const auto followed = follower_->follow(seconds(20));
  leader.join();
  ASSERT_TRUE(followed) << followed.error().message;
  EXPECT_EQ(*followed, Followed::stop);
}

TEST_F(FollowerTest, AStepThatCannotBeRunIsAnError) {
  StepPlan plan = three_tokens();
  plan.blocks[0] = 10'000;
  publish(StepKind::run, plan);
  const auto followed = follower_->follow(seconds(20));
  ASSERT_FALSE(followed);
  EXPECT_EQ(followed.error().code, Code::internal);
}

TEST_F(FollowerTest, APeersDeathInTheMiddleOfAStepIsUnavailable) {
  publish(StepKind::run, three_tokens());
  std::thread daemon([&] { group_->segment().abort("rank 0 was killed"); });
  const auto followed = follower_->follow(seconds(20));
  daemon.join();
  ASSERT_FALSE(followed);
  EXPECT_EQ(followed.error().code, Code::unavailable);
  EXPECT_NE(followed.error().message.find("rank 0 was killed"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
