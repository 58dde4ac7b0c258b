#include "worker/schedule/scheduler.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "worker/schedule/step_budget.h"

namespace plimsoll {
namespace {

SchedulerLimits limits(Blocks blocks, std::int64_t running = 4) {
  return {.step = {.rows_max = 128,
                   .sequences_max = running,
                   .logit_rows_max = 16,
                   .kv_blocks = blocks,
                   .table_blocks_max = 3 * blocks},
          .context_length = 1024,
          .vocab = 100,
          .waiting_max = 1000};
}

std::vector<std::int64_t> prompt_of(Tokens length) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(length), 7);
}

Sampling up_to(std::int64_t max_tokens) {
  Sampling sampling;
  sampling.max_tokens = max_tokens;
  return sampling;
}

// Tokens `first` to `first + length`: another prompt for each `first`.
std::vector<std::int64_t> numbers(std::int64_t first, Tokens length) {
  std::vector<std::int64_t> prompt(static_cast<std::size_t>(length));
  std::iota(prompt.begin(), prompt.end(), first);
  for (std::int64_t& token : prompt) token %= 100;
  return prompt;
}

std::uint64_t must_add(Scheduler& scheduler, Tokens prompt, const Sampling& sampling) {
  auto added = scheduler.add(prompt_of(prompt), sampling);
  EXPECT_TRUE(added) << added.error().message;
  return added ? added->id : 0;
}

// Ends the step with the same token everywhere.
std::vector<Ended> finish(Scheduler& scheduler, std::int32_t token = 1) {
  std::vector<StepOutcome> outcomes(scheduler.entries().size(), StepOutcome{.token = token});
  std::vector<Ended> ended;
  scheduler.finish_step(outcomes, ended);
  return ended;
}

TEST(Scheduler, CutsALongPromptIntoChunksOfTheBudget) {
  Scheduler scheduler(limits(32));
  must_add(scheduler, 100, up_to(2));
  for (const Tokens rows : {40, 40, 20}) {
    const StepPlan& plan = scheduler.plan_step(40);
    EXPECT_EQ(plan.rows(), rows);
    EXPECT_EQ(plan.logit_rows.size(), rows == 20 ? 1U : 0U);
    EXPECT_TRUE(finish(scheduler).empty());
  }
  EXPECT_EQ(scheduler.plan_step(40).rows(), 1);
  const auto ended = finish(scheduler);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].finish, Finish::length);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(scheduler.blocks_used(), 0);
}

TEST(Scheduler, DecodesBeforeItPrefillsAndFillsTheStepWithTheNextPrompt) {
  Scheduler scheduler(limits(32));
  must_add(scheduler, 10, up_to(5));
  scheduler.plan_step(64);
  finish(scheduler);
  must_add(scheduler, 100, up_to(5));
  must_add(scheduler, 100, up_to(5));
  const StepPlan& plan = scheduler.plan_step(64);
  ASSERT_EQ(plan.sequences.size(), 2U);
  EXPECT_EQ(plan.sequences[0].tokens, 1);
  EXPECT_EQ(plan.sequences[0].position, 10);
  EXPECT_EQ(plan.sequences[1].tokens, 63);
}

// Room for long steps.
SchedulerLimits long_steps() {
  SchedulerLimits result = limits(64, 8);
  result.step.rows_max = 512;
  return result;
}

TEST(Scheduler, AStepEndsWithThePromptThatItCompletesOnceItHasRowsEnough) {
  Scheduler scheduler(long_steps());
  for (const Tokens length : {200, 50, 50, 50, 300}) {
    ASSERT_TRUE(scheduler.add(numbers(length % 97, length), up_to(1)));
  }
  for (const Tokens rows : {200, 150, 300}) {
    EXPECT_EQ(scheduler.plan_step(400).rows(), rows);
    EXPECT_EQ(finish(scheduler).size(), rows == 150 ? 3U : 1U);
  }
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, AnswersWaitForATokenWhileShortPromptsFitIntoALongestStep) {
  Scheduler scheduler(long_steps());
  must_add(scheduler, 4, up_to(100));
  scheduler.plan_step(400);
  finish(scheduler);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(scheduler.add(numbers(10 * i, 150), up_to(1)));
  for (const Tokens rows : {150, 150, 151, 150, 150}) {
    const StepPlan& plan = scheduler.plan_step(400);
    ASSERT_EQ(plan.rows(), rows);
    EXPECT_TRUE(check_step(plan, scheduler.limits().step));
    EXPECT_EQ(plan.logit_rows.back(), rows - 1);
    EXPECT_EQ(scheduler.prompt_rows(), 150);
    EXPECT_EQ(finish(scheduler).size(), 1U);
  }
}

TEST(Scheduler, PromptsOfAFewTokensHoldAnswersForAFewStepsOnly) {
  Scheduler scheduler(long_steps());
  must_add(scheduler, 4, up_to(100));
  scheduler.plan_step(400);
  finish(scheduler);
  int held = 0;
  for (int step = 0; step < 40; ++step) {
    ASSERT_TRUE(scheduler.add(numbers(2 * step, 5), up_to(1)));
    const Tokens rows = scheduler.plan_step(400).rows();
    held = rows == scheduler.prompt_rows() ? held + 1 : 0;
    EXPECT_LE(held, 3) << step;
    finish(scheduler);
  }
}

TEST(Scheduler, LongPromptsKeepNoAnswerFromItsToken) {
  Scheduler scheduler(long_steps());
  must_add(scheduler, 4, up_to(100));
  scheduler.plan_step(400);
  finish(scheduler);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(scheduler.add(numbers(10 * i, 700), up_to(1)));
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(scheduler.plan_step(400).sequences[0].tokens, 1) << step;
    finish(scheduler);
  }
}

TEST(Scheduler, PromptsAdvanceEvenWhenDecodingUsesUpTheBudget) {
  Scheduler scheduler(limits(32));
  for (int i = 0; i < 3; ++i) must_add(scheduler, 4, up_to(50));
  scheduler.plan_step(64);
  finish(scheduler);
  must_add(scheduler, 100, up_to(5));
  EXPECT_EQ(scheduler.plan_step(1).rows(), 3 + kStepRowsMin);
}

TEST(Scheduler, AContinuationComputesWhatWasEmittedAndSamplesAfterIt) {
  Scheduler scheduler(limits(32));
  const std::vector<std::int64_t> emitted = {1, 2, 3};
  ASSERT_TRUE(scheduler.add(prompt_of(10), up_to(5), {.emitted = emitted, .prompt_reported = 0}));
  const StepPlan& plan = scheduler.plan_step(64);
  EXPECT_EQ(plan.rows(), 13);
  EXPECT_EQ(plan.logit_rows, (std::vector<std::int32_t>{12}));
  EXPECT_EQ(plan.ids.back(), 3);
  EXPECT_EQ(scheduler.entries()[0].sequence->output().size(), 3U);
  EXPECT_TRUE(finish(scheduler).empty());
  scheduler.plan_step(64);
  EXPECT_EQ(finish(scheduler).size(), 1U);  // the fifth of five
  ASSERT_FALSE(scheduler.add(prompt_of(10), up_to(5), {.emitted = std::vector<std::int64_t>{100}}));
}

TEST(Scheduler, StopsAtAStopTokenAndReportsIt) {
  Scheduler scheduler(limits(32));
  Sampling sampling = up_to(50);
  sampling.stop_ids = {9};
  const auto id = must_add(scheduler, 4, sampling);
  scheduler.plan_step(64);
  EXPECT_TRUE(finish(scheduler, 8).empty());
  scheduler.plan_step(64);
  const auto ended = finish(scheduler, 9);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].id, id);
  EXPECT_EQ(ended[0].finish, Finish::stop);
}

TEST(Scheduler, EndsAtTheContextLength) {
  Scheduler scheduler(limits(64));
  must_add(scheduler, 1023, up_to(500));
  std::vector<Ended> ended;
  int steps = 0;
  for (; ended.empty() && steps < 100; ++steps) {
    scheduler.plan_step(128);
    ended = finish(scheduler);
  }
  EXPECT_EQ(steps, 8);
  EXPECT_EQ(ended[0].finish, Finish::length);
}

TEST(Scheduler, ARequestThatCanNeverFitIsRefusedWithTheArithmetic) {
  Scheduler scheduler(limits(4));
  const auto refused = scheduler.add(prompt_of(100), up_to(60));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid);
  EXPECT_EQ(refused.error().message,
            "100 prompt tokens and up to 60 new ones need 5 KV blocks of 32 tokens, and there are "
            "4; max_tokens of at most 29 fits");
  EXPECT_TRUE(scheduler.add(prompt_of(100), up_to(29)));
  const auto longer = scheduler.add(prompt_of(200), up_to(1));
  ASSERT_FALSE(longer);
  EXPECT_NE(longer.error().message.find("the prompt alone is too long"), std::string::npos);
}

TEST(Scheduler, RefusesPromptsThatTheModelCannotTake) {
  Scheduler scheduler(limits(64));
  EXPECT_FALSE(scheduler.add({}, up_to(1)));
  EXPECT_FALSE(scheduler.add(std::vector<std::int64_t>{1, 100}, up_to(1)));
  EXPECT_FALSE(scheduler.add(std::vector<std::int64_t>{-1}, up_to(1)));
  EXPECT_FALSE(scheduler.add(prompt_of(1024), up_to(1)));
  EXPECT_FALSE(scheduler.add(prompt_of(4), up_to(-1)));
}

TEST(Scheduler, AFullQueueIsUnavailableNotInvalid) {
  SchedulerLimits small = limits(32);
  small.waiting_max = 1;
  Scheduler scheduler(small);
  EXPECT_TRUE(scheduler.add(prompt_of(4), up_to(1)));
  const auto refused = scheduler.add(prompt_of(4), up_to(1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unavailable);
}

TEST(Scheduler, CancellingFreesAtOnce) {
  Scheduler scheduler(limits(32));
  const auto running = must_add(scheduler, 40, up_to(50));
  scheduler.plan_step(64);
  finish(scheduler);
  const auto waiting = must_add(scheduler, 40, up_to(50));
  EXPECT_TRUE(scheduler.cancel(waiting));
  EXPECT_TRUE(scheduler.cancel(running));
  EXPECT_FALSE(scheduler.cancel(running));
  EXPECT_EQ(scheduler.blocks_used(), 0);
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, AFailedRowEndsItsSequenceAlone) {
  Scheduler scheduler(limits(32));
  const auto bad = must_add(scheduler, 4, up_to(50));
  must_add(scheduler, 4, up_to(50));
  scheduler.plan_step(64);
  std::vector<StepOutcome> outcomes = {{.token = -1, .failed = true}, {.token = 1}};
  std::vector<Ended> ended;
  scheduler.finish_step(outcomes, ended);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].id, bad);
  EXPECT_EQ(ended[0].finish, Finish::error);
  EXPECT_EQ(scheduler.running(), 1);
}

TEST(Scheduler, PreemptsTheYoungestAndComputesItsTokensAgain) {
  SchedulerLimits nothing_kept = limits(5);
  nothing_kept.prefix_cache = false;
  Scheduler scheduler(nothing_kept);
  const auto oldest = must_add(scheduler, 62, up_to(60));
  const auto youngest = must_add(scheduler, 31, up_to(60));
  std::map<std::uint64_t, Tokens> ended_at;
  bool recomputed = false;
  for (int step = 0; !scheduler.idle() && step < 500; ++step) {
    scheduler.plan_step(128);
    for (const StepEntry& entry : scheduler.entries()) {
      if (entry.sequence->id == youngest && entry.position == 0 && entry.rows > 31) {
        recomputed = true;
      }
      EXPECT_FALSE(entry.sequence->id == oldest && entry.position == 0 && step > 0);
    }
    for (const Ended& end : finish(scheduler)) ended_at[end.id] = step;
  }
  EXPECT_GT(scheduler.preemptions(), 0);
  EXPECT_TRUE(recomputed);
  EXPECT_EQ(ended_at.size(), 2U);
  EXPECT_LT(ended_at[oldest], ended_at[youngest]);
}

TEST(Scheduler, PromptLogprobsGetALogitRowForEachTokenAndNeverTwo) {
  Scheduler scheduler(limits(32));
  Sampling sampling = up_to(0);
  sampling.prompt_logprobs = true;
  must_add(scheduler, 50, sampling);
  std::vector<Tokens> positions;
  while (!scheduler.idle()) {
    const StepPlan& plan = scheduler.plan_step(128);
    EXPECT_LE(plan.logit_rows.size(), 16U);
    for (const std::int32_t row : plan.logit_rows) {
      positions.push_back(scheduler.entries()[0].position + row);
    }
    finish(scheduler);
  }
  ASSERT_EQ(positions.size(), 49U);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    EXPECT_EQ(positions[i], static_cast<Tokens>(i));
  }
}

TEST(Scheduler, WithoutAnythingToComputeARequestIsDoneAtOnce) {
  Scheduler scheduler(limits(32));
  const auto added = scheduler.add(prompt_of(10), up_to(0));
  ASSERT_TRUE(added);
  EXPECT_TRUE(added->done);
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, APromptThatBeginsLikeAnEarlierOneComputesOnlyTheRest) {
  Scheduler scheduler(limits(32));
  ASSERT_TRUE(scheduler.add(numbers(0, 100), up_to(1)));
  scheduler.plan_step(128);
  finish(scheduler);
  EXPECT_EQ(scheduler.blocks_used(), 0);
  EXPECT_EQ(scheduler.blocks_idle(), 3);
  std::vector<std::int64_t> longer = numbers(0, 100);
  longer.resize(120, 9);
  ASSERT_TRUE(scheduler.add(longer, up_to(1)));
  scheduler.plan_step(128);
  ASSERT_EQ(scheduler.entries().size(), 1U);
  EXPECT_EQ(scheduler.entries()[0].position, 96);
  EXPECT_EQ(scheduler.entries()[0].rows, 24);
  EXPECT_EQ(scheduler.entries()[0].sequence->cached, 96);
}

TEST(Scheduler, ThePromptsLastTokenIsAlwaysComputed) {
  Scheduler scheduler(limits(32));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(scheduler.add(numbers(0, 96), up_to(1)));
    scheduler.plan_step(128);
    ASSERT_EQ(scheduler.entries().size(), 1U);
    EXPECT_EQ(scheduler.entries()[0].rows, i == 0 ? 96 : 32);
    EXPECT_TRUE(scheduler.entries()[0].samples);
    finish(scheduler);
  }
}

TEST(Scheduler, PromptLogprobsAreComputedAlsoWhereTheBlocksAreKept) {
  SchedulerLimits many_rows = limits(32);
  many_rows.step.logit_rows_max = 128;
  Scheduler scheduler(many_rows);
  Sampling sampling = up_to(1);
  sampling.prompt_logprobs = true;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(scheduler.add(numbers(0, 100), sampling));
    EXPECT_EQ(scheduler.plan_step(128).logit_rows.size(), 100U);
    finish(scheduler);
  }
}

TEST(Scheduler, KeptBlocksMakeRoomForThosePromptsThatNeedThem) {
  Scheduler scheduler(limits(4));
  for (const std::int64_t first : {0, 50, 0}) {
    ASSERT_TRUE(scheduler.add(numbers(first, 127), up_to(1)));
    scheduler.plan_step(128);
    ASSERT_EQ(scheduler.entries().size(), 1U);
    EXPECT_EQ(scheduler.entries()[0].rows, 127);
    finish(scheduler);
  }
  EXPECT_EQ(scheduler.preemptions(), 0);
}

TEST(Scheduler, SequencesThatShareAPromptRunBesideEachOtherInFewerBlocks) {
  Scheduler scheduler(limits(12));  // apart they would need 16
  const auto run_one_step = [&] {
    scheduler.plan_step(128);
    finish(scheduler);
  };
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(scheduler.add(numbers(0, 100), up_to(20)));
    run_one_step();
  }
  run_one_step();
  EXPECT_EQ(scheduler.running(), 4);
  EXPECT_EQ(scheduler.blocks_used(), 3 + 4);
  EXPECT_EQ(scheduler.preemptions(), 0);
}

TEST(Scheduler, DecodesOnWithTheSameSequencesUntilOneEnds) {
  Scheduler scheduler(limits(32));
  must_add(scheduler, 30, up_to(6));
  must_add(scheduler, 10, up_to(5));
  scheduler.plan_step(64);
  finish(scheduler);
  EXPECT_EQ(scheduler.plan_next_decode(), nullptr) << "whoever waits for a first token waits on";
  scheduler.plan_step(64);
  finish(scheduler);
  must_add(scheduler, 10, up_to(5));
  for (const int generated : {3, 4, 5}) {
    const StepPlan* plan = scheduler.plan_next_decode();
    ASSERT_NE(plan, nullptr);
    ASSERT_EQ(plan->sequences.size(), 2U);
    EXPECT_EQ(plan->sequences[0].position, 30 + generated - 2);
    EXPECT_EQ(plan->sequences[0].blocks_count, generated < 4 ? 1 : 2);
    EXPECT_EQ(finish(scheduler).size(), generated == 5 ? 1U : 0U);
  }
  EXPECT_EQ(scheduler.plan_next_decode(), nullptr);
  EXPECT_EQ(scheduler.plan_step(64).sequences.size(), 2U) << "the one that came meanwhile";
}

TEST(Scheduler, DecodingOnTakesNobodysBlocks) {
  Scheduler scheduler(limits(3));
  for (const std::int64_t first : {0, 50}) {
    ASSERT_TRUE(scheduler.add(numbers(first, 31), up_to(60)));
  }
  for (int i = 0; i < 2; ++i) {
    scheduler.plan_step(64);
    finish(scheduler);
  }
  EXPECT_EQ(scheduler.plan_next_decode(), nullptr) << "two blocks are wanted and one is there";
  EXPECT_EQ(scheduler.preemptions(), 0);
  EXPECT_EQ(scheduler.plan_step(64).sequences.size(), 1U);
  EXPECT_EQ(scheduler.preemptions(), 1);
  finish(scheduler);
}

}  // namespace
}  // namespace plimsoll
