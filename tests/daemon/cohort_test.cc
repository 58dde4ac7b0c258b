#include "daemon/cohort.h"

#include <csignal>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr TimePoint kStart = TimePoint() + seconds(100);

class CohortTest : public ::testing::Test {
 protected:
  CohortTest() { plan_.tp = 2; }
  Cohort cohort() const {
    return Cohort({.plan = &plan_, .replica = 3, .runtime = "/run", .seed = 1, .starts_max = 2});
  }
  void hello(Cohort& cohort, std::int64_t rank) {
    Hello words;
    words.rank = rank;
    cohort.hello("peer " + std::to_string(rank), words, kStart, out_);
  }
  void bring_up(Cohort& cohort, std::int64_t incarnation, TimePoint at) {
    cohort.start(incarnation, at, out_);
    for (const std::int64_t rank : {0, 1}) cohort.child_started(rank, 10 + rank, at);
    for (const std::int64_t rank : {0, 1}) hello(cohort, rank);
    for (const std::int64_t rank : {0, 1}) cohort.said(rank, Loaded{}, at, out_);
    ASSERT_TRUE(cohort.awaits_commit());
    cohort.commit(plan_.kv_blocks, plan_.context_length, at, out_);
    for (const std::int64_t rank : {0, 1}) cohort.said(rank, Ready{"cpu", nullptr}, at, out_);
  }
  template <typename A>
  std::size_t count() const {
    std::size_t found = 0;
    for (const Action& action : out_) found += std::holds_alternative<A>(action) ? 1U : 0U;
    return found;
  }

  LaunchPlan plan_;
  Actions out_;
};

TEST_F(CohortTest, StatesFollowWhatItsRanksSay) {
  Cohort cohort = this->cohort();
  EXPECT_EQ(cohort.state(), CohortState::idle);
  bring_up(cohort, 7, kStart);
  EXPECT_EQ(cohort.state(), CohortState::ready);
  EXPECT_EQ(cohort.endpoint(), "ipc:///run/replica-3-7");
  EXPECT_EQ(cohort.workers()[1].device, "cpu");
}

Json table(const char* hash) { return Json::object({{"backend", "shm"}, {"hash", hash}}); }

TEST_F(CohortTest, RanksWhoseTablesDifferAreOneFault) {
  Cohort cohort = this->cohort();
  cohort.start(1, kStart, out_);
  for (const std::int64_t rank : {0, 1}) cohort.child_started(rank, 10 + rank, kStart);
  for (const std::int64_t rank : {0, 1}) hello(cohort, rank);
  for (const std::int64_t rank : {0, 1}) cohort.said(rank, Loaded{}, kStart, out_);
  cohort.commit(8, 512, kStart, out_);
  cohort.said(0, Ready{"cpu", nullptr, table("a")}, kStart, out_);
  cohort.said(1, Ready{"cpu", nullptr, table("b")}, kStart, out_);
  EXPECT_EQ(cohort.state(), CohortState::dying);
  EXPECT_EQ(count<AbortSegment>(), 1U);
  for (const std::int64_t rank : {0, 1}) cohort.child_exited(rank, {true, SIGKILL}, kStart, out_);
  cohort.tick(kStart + seconds(5), out_);
  const std::optional<RootCause> cause = cohort.take_cause();
  ASSERT_TRUE(cause);
  EXPECT_NE(cause->message.find("another table of collectives than rank 0"), std::string::npos)
      << cause->message;
}

TEST_F(CohortTest, ATableIsKeptForTheNextStartOfTheSameRanks) {
  plan_.collectives = table("planned");
  Cohort cohort = this->cohort();
  const auto loaded_with = [&] {
    std::string hash;
    for (const Action& action : out_) {
      const auto* send = std::get_if<Send>(&action);
      const auto* load = send == nullptr ? nullptr : std::get_if<Load>(&send->message);
      if (load != nullptr) hash = load->collectives.find("hash")->as_string();
    }
    return hash;
  };
  cohort.start(1, kStart, out_);
  for (const std::int64_t rank : {0, 1}) cohort.child_started(rank, 10 + rank, kStart);
  for (const std::int64_t rank : {0, 1}) hello(cohort, rank);
  EXPECT_EQ(loaded_with(), "planned");
  for (const std::int64_t rank : {0, 1}) cohort.said(rank, Loaded{}, kStart, out_);
  cohort.commit(8, 512, kStart, out_);
  for (const std::int64_t rank : {0, 1}) {
    cohort.said(rank, Ready{"cpu", nullptr, table("found")}, kStart, out_);
  }
  EXPECT_EQ(cohort.state(), CohortState::ready);
  for (const std::int64_t rank : {0, 1}) cohort.child_exited(rank, {true, SIGKILL}, kStart, out_);
  TimePoint at = kStart;
  for (int i = 0; i < 100 && cohort.state() != CohortState::loading; ++i) {
    cohort.tick(at += seconds(1), out_);
    if (cohort.state() == CohortState::idle) break;
  }
  out_.clear();
  if (cohort.state() != CohortState::loading) cohort.start(2, at, out_);
  for (const std::int64_t rank : {0, 1}) cohort.child_started(rank, 20 + rank, at);
  for (const std::int64_t rank : {0, 1}) hello(cohort, rank);
  EXPECT_EQ(loaded_with(), "found");
}

TEST_F(CohortTest, TheSegmentIsMadeBeforeTheRanksAndDroppedAfterThem) {
  Cohort cohort = this->cohort();
  cohort.start(1, kStart, out_);
  ASSERT_TRUE(std::holds_alternative<CreateSegment>(out_[0]));
  EXPECT_TRUE(std::holds_alternative<Spawn>(out_[1]));
  out_.clear();
  cohort.child_exited(0, {true, SIGKILL}, kStart, out_);
  EXPECT_EQ(count<AbortSegment>(), 1U);
  EXPECT_EQ(count<DropSegment>(), 0U);
  cohort.child_exited(1, {true, SIGKILL}, kStart, out_);
  EXPECT_EQ(count<DropSegment>(), 1U);
  EXPECT_EQ(cohort.state(), CohortState::waiting);
  EXPECT_GT(cohort.retry_at(), kStart);
  EXPECT_TRUE(cohort.take_cause());
  EXPECT_FALSE(cohort.take_cause()) << "each cause once";
}

// 64 ranks would have 4,032 descriptors of them, and CPU ranks never look at one.
TEST_F(CohortTest, OnlyRanksWithCudaKernelsHaveSocketsBetweenThem) {
  const auto connects = [&] {
    out_.clear();
    Cohort cohort = this->cohort();
    cohort.start(1, kStart, out_);
    return std::get<CreateSegment>(out_.at(0)).connects_ranks;
  };
  EXPECT_FALSE(connects()) << "CPUs";
  plan_.options.values.devices = "cuda:host";
  EXPECT_TRUE(connects());
  plan_.options.values.devices = "auto";
  plan_.memory.ranks.resize(8);
  for (RankPlan& rank : plan_.memory.ranks) rank.device_uuid = "GPU-1";
  EXPECT_TRUE(connects());
  for (RankPlan& rank : plan_.memory.ranks) rank.device_uuid = "simulated-0";
  EXPECT_FALSE(connects());
}

// The connection may have broken with the message on its way.
TEST_F(CohortTest, WhatARankMayHaveMissedIsSaidAgainWhenItSaysHelloAgain) {
  Cohort cohort = this->cohort();
  cohort.start(1, kStart, out_);
  for (const std::int64_t rank : {0, 1}) cohort.child_started(rank, 10 + rank, kStart);
  const auto last_to = [&](std::int64_t rank) -> const Message* {
    const auto* send = out_.empty() ? nullptr : std::get_if<Send>(&out_.back());
    const bool is_meant = send != nullptr && send->peer == "peer " + std::to_string(rank);
    return is_meant ? &send->message : nullptr;
  };
  for (const std::int64_t rank : {0, 1, 1}) {
    out_.clear();
    hello(cohort, rank);
    ASSERT_NE(last_to(rank), nullptr);
    ASSERT_TRUE(std::holds_alternative<Load>(*last_to(rank)));
    EXPECT_EQ(std::get<Load>(*last_to(rank)).rank, rank);
  }
  cohort.said(1, Progress{.phase = "loading", .done = 1, .total = 9}, kStart, out_);
  out_.clear();
  hello(cohort, 1);
  EXPECT_TRUE(out_.empty()) << "it has said that it loads";
  for (const std::int64_t rank : {0, 1}) cohort.said(rank, Loaded{}, kStart, out_);
  hello(cohort, 1);
  EXPECT_TRUE(out_.empty()) << "there is nothing that it waits for yet";
  cohort.commit(42, 1024, kStart, out_);
  out_.clear();
  hello(cohort, 1);
  ASSERT_NE(last_to(1), nullptr);
  EXPECT_EQ(std::get<Commit>(*last_to(1)).kv_blocks, 42);
  EXPECT_EQ(std::get<Commit>(*last_to(1)).context_length, 1024);
  for (const std::int64_t rank : {0, 1}) cohort.said(rank, Ready{"cpu", nullptr}, kStart, out_);
  EXPECT_EQ(cohort.state(), CohortState::ready);
  out_.clear();
  hello(cohort, 1);
  EXPECT_TRUE(out_.empty());
  cohort.drain(seconds(5), kStart, out_);
  out_.clear();
  hello(cohort, 1);
  ASSERT_NE(last_to(1), nullptr);
  EXPECT_TRUE(std::holds_alternative<Drain>(*last_to(1)));
  cohort.end(SIGTERM, kStart, out_);
  out_.clear();
  hello(cohort, 1);
  EXPECT_TRUE(out_.empty()) << "it is being killed";
}

TEST_F(CohortTest, ReadyBeforeCommitMeansNothing) {
  Cohort cohort = this->cohort();
  cohort.start(1, kStart, out_);
  cohort.said(0, Ready{"cpu", nullptr}, kStart, out_);
  cohort.said(1, Ready{"cpu", nullptr}, kStart, out_);
  EXPECT_EQ(cohort.state(), CohortState::loading);
}

TEST_F(CohortTest, RanksThatHaveLoadedWaitForAsLongAsItTakesToBeCommitted) {
  Cohort cohort = this->cohort();
  cohort.start(1, kStart, out_);
  for (const std::int64_t rank : {0, 1}) cohort.child_started(rank, 10 + rank, kStart);
  for (const std::int64_t rank : {0, 1}) hello(cohort, rank);
  cohort.said(1, Loaded{}, kStart, out_);
  EXPECT_FALSE(cohort.awaits_commit());
  Measured measured;
  measured.terms["weights"] = 5;
  cohort.said(0, Loaded{measured_to_json(measured)}, kStart, out_);
  EXPECT_TRUE(cohort.awaits_commit());
  EXPECT_EQ(cohort.workers()[0].measured->terms.at("weights"), 5);
  EXPECT_EQ(cohort.next_deadline(), std::nullopt);
  cohort.tick(kStart + seconds(100'000), out_);
  EXPECT_EQ(cohort.state(), CohortState::loading);
  cohort.commit(42, 1024, kStart, out_);
  EXPECT_EQ(cohort.state(), CohortState::warming);
  EXPECT_EQ(cohort.kv_blocks(), 42);
  EXPECT_EQ(std::get<Commit>(std::get<Send>(out_.back()).message).kv_blocks, 42);
  EXPECT_TRUE(cohort.next_deadline());
}

TEST_F(CohortTest, ARefusalEndsAllRanksAndIsTheCause) {
  Cohort cohort = this->cohort();
  cohort.start(1, kStart, out_);
  for (const std::int64_t rank : {0, 1}) cohort.child_started(rank, 10 + rank, kStart);
  for (const std::int64_t rank : {0, 1}) hello(cohort, rank);
  for (const std::int64_t rank : {0, 1}) cohort.said(rank, Loaded{}, kStart, out_);
  cohort.refuse(does_not_fit("no room"), kStart, out_);
  for (const std::int64_t rank : {0, 1}) cohort.child_exited(rank, {true, 9}, kStart, out_);
  cohort.tick(kStart + seconds(1), out_);
  EXPECT_EQ(cohort.state(), CohortState::failed);
  ASSERT_TRUE(cohort.last_cause());
  EXPECT_EQ(cohort.last_cause()->code, Code::does_not_fit);
}

TEST_F(CohortTest, RepeatedProgressIsNoProgress) {
  Cohort cohort = this->cohort();
  cohort.start(1, kStart, out_);
  hello(cohort, 0);
  cohort.said(0, Progress{"loading", 5, 10}, kStart, out_);
  const auto deadline = cohort.next_deadline();
  cohort.said(0, Progress{"loading", 5, 10}, kStart + seconds(50), out_);
  EXPECT_EQ(cohort.next_deadline(), deadline);
}

TEST_F(CohortTest, ARankThatWaitsForItsPeersIsNotTheOneThatHoldsThemUp) {
  Cohort cohort = this->cohort();
  cohort.start(1, kStart, out_);
  for (const std::int64_t rank : {0, 1}) hello(cohort, rank);
  const Duration limit = *cohort.next_deadline() - kStart;
  cohort.said(0, Progress{"waiting", 10, 10}, kStart, out_);
  for (int step = 1; step <= 5; ++step) {  // the other one is slow, and moves
    const TimePoint at = kStart + step * limit / 2;
    cohort.said(1, Progress{"loading", step, 10}, at, out_);
    cohort.tick(at, out_);
    ASSERT_EQ(cohort.state(), CohortState::loading) << step;
  }
  // Then both record: who has waited has as long for it as the other.
  const TimePoint met = kStart + 3 * limit;
  cohort.said(1, Progress{"waiting", 10, 10}, met, out_);
  EXPECT_EQ(cohort.next_deadline(), met + limit);
  cohort.said(0, Loaded{}, met + limit / 2, out_);
  cohort.tick(met + limit, out_);
  EXPECT_EQ(cohort.state(), CohortState::dying);
}

TEST_F(CohortTest, TokensASecondComeFromTheDifferenceOfAnswers) {
  Cohort cohort = this->cohort();
  bring_up(cohort, 1, kStart);
  for (int second = 1; second <= 5; ++second) {
    Pong pong;
    pong.steps = second;
    pong.running = 1;
    pong.generated_tokens = second * 42;
    cohort.said(0, pong, kStart + seconds(second), out_);
  }
  EXPECT_NEAR(cohort.figures().tokens_per_second, 42, 0.01);
  for (const std::int64_t rank : {0, 1}) {
    cohort.child_exited(rank, {true, SIGKILL}, kStart + seconds(6), out_);
  }
  EXPECT_EQ(cohort.figures().tokens_per_second, 0) << "of a dead replica";
  EXPECT_EQ(cohort.figures().last.running, 0);
}

TEST_F(CohortTest, OfRanksThatAllFellSilentTheOneWhomTheOthersWaitForIsNamed) {
  plan_.tp = 3;
  for (const std::uint32_t base : {100U, 0xFFFFFFFFU}) {  // counters wrap
    for (std::uint32_t stopped = 0; stopped < 3; ++stopped) {
      Cohort cohort = this->cohort();
      cohort.start(1, kStart, out_);
      for (const std::int64_t rank : {0, 1, 2}) cohort.child_started(rank, 10 + rank, kStart);
      for (const std::int64_t rank : {0, 1, 2}) hello(cohort, rank);
      for (const std::int64_t rank : {0, 1, 2}) cohort.said(rank, Loaded{}, kStart, out_);
      cohort.commit(plan_.kv_blocks, plan_.context_length, kStart, out_);
      for (const std::int64_t rank : {0, 1, 2})
        cohort.said(rank, Ready{"cpu", nullptr}, kStart, out_);
      ASSERT_EQ(cohort.state(), CohortState::ready);
      for (TimePoint at = kStart; cohort.state() == CohortState::ready; at += milliseconds(100)) {
        ASSERT_LT(at, kStart + seconds(600));
        std::vector<RankMark> marks(3);
        for (RankMark& mark : marks) mark.round = base + 1;
        marks[stopped].round = base;
        cohort.note_marks(marks);
        cohort.tick(at, out_);
      }
      out_.clear();
      for (const std::int64_t rank : {0, 1, 2}) {
        cohort.child_exited(rank, {true, SIGKILL}, kStart + seconds(700), out_);
      }
      const std::optional<RootCause> cause = cohort.take_cause();
      ASSERT_TRUE(cause);
      EXPECT_EQ(cause->rank, stopped) << cause->message;
      const std::string waits = "waits for it in collective " + std::to_string(base + 1);
      EXPECT_NE(cause->message.find(waits), std::string::npos) << cause->message;
    }
  }
}

TEST_F(CohortTest, ADeathIsActedOnBeforeTheProcessIsGone) {
  Cohort cohort = this->cohort();
  bring_up(cohort, 1, kStart);
  out_.clear();
  cohort.child_dying(1, kStart, out_);
  EXPECT_EQ(cohort.state(), CohortState::dying);
  EXPECT_EQ(count<AbortSegment>(), 1U);
  // It takes the kernel longer than the peers get, so that all are killed.
  cohort.tick(kStart + milliseconds(400), out_);
  EXPECT_EQ(count<Kill>(), 2U);
  cohort.child_exited(0, {true, SIGKILL}, kStart + milliseconds(410), out_);
  cohort.child_exited(1, {true, SIGKILL}, kStart + milliseconds(800), out_);
  EXPECT_EQ(count<AbortSegment>(), 1U);
  EXPECT_EQ(cohort.take_cause()->rank, 1);
}

TEST_F(CohortTest, TellsWhatItsLastIncarnationEndedOf) {
  Cohort cohort = this->cohort();
  bring_up(cohort, 7, kStart);
  EXPECT_EQ(cohort.ended_incarnation(), 0);
  cohort.child_exited(0, {true, SIGSEGV}, kStart, out_);
  EXPECT_EQ(cohort.ended_incarnation(), 0) << "its peer is still there";
  cohort.child_exited(1, {true, SIGKILL}, kStart, out_);
  EXPECT_EQ(cohort.ended_incarnation(), 7);
  EXPECT_TRUE(cohort.ended_by_fault());
}

TEST_F(CohortTest, ARankThatNoSignalEndsIsNamedOnceAndWaitedFor) {
  Cohort cohort = this->cohort();
  ASSERT_NO_FATAL_FAILURE(bring_up(cohort, 1, kStart));
  cohort.child_exited(1, {.by_signal = true, .code = SIGSEGV}, kStart, out_);
  out_.clear();
  TimePoint at = kStart;
  std::vector<std::string> errors;
  for (int i = 0; i < 60; ++i) {
    at += milliseconds(500);
    cohort.tick(at, out_);
    for (const Action& action : std::exchange(out_, {})) {
      if (const auto* log = std::get_if<Log>(&action)) errors.push_back(log->line);
      const auto* look = std::get_if<LookAtProcess>(&action);
      if (look == nullptr) continue;
      EXPECT_EQ(look->child.rank, 0);
      // On the CPU there is no device to do without.
      const ProcessState state{.letter = 'D', .wait_channel = "nfs_wait"};
      EXPECT_EQ(cohort.process_seen(0, state, at, out_), StuckVerdict::wait);
    }
    EXPECT_EQ(errors.size(), at - kStart < seconds(10) ? 0U : errors.size());
  }
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_NE(errors[0].find("rank 0 (pid 10) has not ended 10 s after it was killed"),
            std::string::npos)
      << errors[0];
  EXPECT_NE(errors[0].find("stuck in the kernel (in nfs_wait)"), std::string::npos) << errors[0];
  EXPECT_EQ(cohort.state(), CohortState::dying);
  cohort.child_exited(0, {.by_signal = true, .code = SIGKILL}, at, out_);
  EXPECT_EQ(cohort.state(), CohortState::waiting);
}

TEST_F(CohortTest, NoDelayIsLongerThanRequestsWaitForItsStart) {
  plan_.options.values.hold_deadline = seconds(20);
  const auto longest = [this](Duration start) {
    Cohort cohort = this->cohort();
    Duration most{0};
    TimePoint at = kStart;
    for (std::int64_t life = 1; life <= 12; ++life) {
      cohort.start(life, at, out_);
      for (const std::int64_t rank : {0, 1}) cohort.child_started(rank, 10 + rank, at);
      for (const std::int64_t rank : {0, 1}) hello(cohort, rank);
      for (const std::int64_t rank : {0, 1}) cohort.said(rank, Loaded{}, at, out_);
      cohort.commit(plan_.kv_blocks, plan_.context_length, at, out_);
      at += start;
      for (const std::int64_t rank : {0, 1}) cohort.said(rank, Ready{"cpu", nullptr}, at, out_);
      for (const std::int64_t rank : {0, 1}) cohort.child_exited(rank, {true, SIGKILL}, at, out_);
      most = std::max(most, Duration(cohort.retry_at() - at));
    }
    return most;
  };
  EXPECT_GT(longest(seconds(1)), seconds(7)) << "half of what they wait";
  EXPECT_LE(longest(seconds(1)), seconds(10));
  EXPECT_GT(longest(seconds(8)), seconds(4)) << "a start and half of one, and 2 s, are left of it";
  EXPECT_LE(longest(seconds(8)), seconds(6));
  EXPECT_GT(longest(seconds(15)), seconds(20)) << "they cannot wait so long: haste saves nobody";
}

TEST_F(CohortTest, ADrainedCohortIsNotStartedAgain) {
  Cohort cohort = this->cohort();
  bring_up(cohort, 1, kStart);
  cohort.drain(milliseconds(500), kStart, out_);
  cohort.child_exited(0, {false, 0}, kStart, out_);
  cohort.child_exited(1, {false, 0}, kStart, out_);
  EXPECT_EQ(cohort.state(), CohortState::idle);
  EXPECT_EQ(count<Log>(), 0U);
  EXPECT_FALSE(cohort.next_deadline());
}

}  // namespace
}  // namespace plimsoll
