#include "router/dispatch/resume.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Fate = Resumable::Fate;

Generate generate_of(std::uint64_t id) {
  Generate generate;
  generate.id = id;
  generate.prompt = {1, 2, 3};
  generate.sampling.seed = 99;
  return generate;
}

TokenEvent tokens(std::vector<std::int64_t> ids, std::size_t prompt_logprobs = 0) {
  TokenEvent event;
  event.tokens = std::move(ids);
  event.prompt_logprobs.resize(prompt_logprobs);
  return event;
}

TEST(Resumable, TheFirstAttemptIsTheRequestItself) {
  Resumable request(generate_of(7));
  const Generate first = request.next_attempt();
  EXPECT_EQ(first.id, 7U);
  EXPECT_TRUE(first.emitted.empty());
  EXPECT_TRUE(request.is_current(7));
}

TEST(Resumable, ALaterAttemptGoesOnWhereTheClientIs) {
  Resumable request(generate_of(7));
  (void)request.next_attempt();
  request.note(tokens({}, 2));
  request.note(tokens({4, 5}));
  request.note(tokens({6}));
  const Generate next = request.next_attempt();
  EXPECT_EQ(next.prompt, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(next.emitted, (std::vector<std::int64_t>{4, 5, 6}));
  EXPECT_EQ(next.prompt_reported, 2);
  EXPECT_EQ(next.sampling.seed, 99U);
  EXPECT_EQ(request.prefill_tokens(), 6);
}

TEST(Resumable, WordsOfAnEarlierAttemptAreNotThoseOfALaterOne) {
  Resumable request(generate_of(7));
  const std::uint64_t first = request.next_attempt().id;
  const std::uint64_t second = request.next_attempt().id;
  EXPECT_NE(first, second);
  EXPECT_FALSE(request.is_current(first));
  EXPECT_TRUE(request.is_current(second));
  EXPECT_EQ(request_id(second), 7U);
  EXPECT_EQ(request.wire_id(), second);
}

TEST(Resumable, MayBeLostABoundedNumberOfTimes) {
  Resumable request(generate_of(1));
  const ResumeLimits limits{.losses_max = 2};
  EXPECT_TRUE(request.lost(limits));
  EXPECT_TRUE(request.lost(limits));
  EXPECT_FALSE(request.lost(limits));
  EXPECT_EQ(request.losses(), 3);
}

TEST(Resumable, KillsFromOutsideNeverMakeASuspect) {
  Resumable request(generate_of(1));
  const ResumeLimits limits;
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(request.died(limits)) << "nothing to wait for";
    EXPECT_EQ(request.judged(false, true, limits), Fate::again);
  }
  EXPECT_FALSE(request.is_suspect(limits));
}

TEST(Resumable, AfterTheFirstFaultTheSecondDeathIsJudgedBeforeItRunsAgain) {
  Resumable request(generate_of(1));
  const ResumeLimits limits;
  EXPECT_FALSE(request.died(limits));
  EXPECT_EQ(request.judged(true, false, limits), Fate::again);
  EXPECT_TRUE(request.died(limits));
  EXPECT_EQ(request.judged(true, false, limits), Fate::alone);
  EXPECT_TRUE(request.is_suspect(limits));
}

TEST(Resumable, TwoDeathsOfUnknownCauseAreWaitedForToo) {
  Resumable request(generate_of(1));
  const ResumeLimits limits;
  EXPECT_FALSE(request.died(limits));
  EXPECT_TRUE(request.died(limits));
  EXPECT_EQ(request.judged(true, false, limits), Fate::waits);
  EXPECT_EQ(request.judged(false, false, limits), Fate::again);
}

TEST(Resumable, OneThatDiesAloneIsNeverTriedAgain) {
  Resumable request(generate_of(1));
  const ResumeLimits limits;
  (void)request.died(limits);
  EXPECT_EQ(request.judged(true, true, limits), Fate::again) << "once may be chance";
  (void)request.died(limits);
  EXPECT_EQ(request.judged(true, true, limits), Fate::never);
}

TEST(Resumable, ASuspectIsClearOnceItIsPastThePlaceOfItsDeath) {
  Resumable request(generate_of(1));
  const ResumeLimits limits{.tokens_to_clear = 3};
  request.note(tokens({1, 1, 1, 1}));
  (void)request.died(limits), (void)request.judged(true, false, limits);
  (void)request.died(limits), (void)request.judged(true, false, limits);
  request.note(tokens({1, 1}));
  EXPECT_FALSE(request.is_clear(limits));
  request.note(tokens({1}));
  EXPECT_TRUE(request.is_clear(limits));
  request.clear(limits);
  EXPECT_FALSE(request.is_suspect(limits));
  (void)request.died(limits);
  EXPECT_EQ(request.judged(true, false, limits), Fate::alone) << "one more makes it one again";
  request.note(tokens(std::vector<std::int64_t>(1000, 1)));
  EXPECT_FALSE(request.is_clear(limits)) << "and then to its end";
}

ReplicaInfo info(std::int64_t replica, std::int64_t incarnation, std::int64_t ended,
                 bool by_fault = false) {
  return {replica, "restarting", "", incarnation, ended, by_fault};
}

TEST(LossLedger, WaitsForTheCauseAndTellsItOnce) {
  LossLedger ledger;
  ledger.add({0, 5, {1, 2}});
  EXPECT_TRUE(ledger.judge({info(0, 5, 4, true)}).empty());
  const auto verdicts = ledger.judge({info(0, 5, 5, true)});
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_TRUE(verdicts[0].by_fault);
  EXPECT_EQ(verdicts[0].loss.requests, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(ledger.size(), 0U);
}

TEST(LossLedger, WhatIsNotToldBeforeTheNextStartIsNoFault) {
  LossLedger ledger;
  ledger.add({0, 5, {1}});
  ledger.add({1, 6, {2}});
  const auto verdicts = ledger.judge({info(0, 7, 4, true)});  // and replica 1 is gone for good
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_FALSE(verdicts[0].by_fault);
  EXPECT_FALSE(verdicts[1].by_fault);
}

}  // namespace
}  // namespace plimsoll
