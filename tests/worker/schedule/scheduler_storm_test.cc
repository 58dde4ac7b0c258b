#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "worker/schedule/scheduler.h"
#include "worker/schedule/step_budget.h"

namespace plimsoll {
namespace {

constexpr Tokens kBudgetMax = 240;

// Tokens `first` to `first + length`: another prompt for each `first`.
std::vector<std::int64_t> prompt_from(std::int64_t first, Tokens length) {
  std::vector<std::int64_t> prompt(static_cast<std::size_t>(length));
  std::iota(prompt.begin(), prompt.end(), first);
  for (std::int64_t& token : prompt) token %= 100;
  return prompt;
}

// Random arrivals, cancels and budgets on a pool that is too small for what runs.
class Storm {
 public:
  explicit Storm(std::uint32_t seed) : random_(seed), scheduler_(storm_limits()) {}

  void run() {
    for (int step = 0; step < 400 || !scheduler_.idle(); ++step) {
      ASSERT_LT(step, 20'000) << "requests starve";
      if (step < 400) arrive();
      one_step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(scheduler_.blocks_used(), 0);
    EXPECT_EQ(ended_.size() + cancelled_, added_);
  }
  std::int64_t preemptions() const { return scheduler_.preemptions(); }
  std::size_t shared() const { return shared_; }
  int decoded_on() const { return decoded_on_; }
  int held() const { return held_; }

 private:
  struct Wanted {
    Tokens prompt = 0;
    std::int64_t max_tokens = 0;
    bool prompt_logprobs = false;
    Tokens generated = 0;
    Tokens logprobs = 0;
    bool started = false;
    std::vector<std::int64_t> tokens;
  };

  SchedulerLimits storm_limits() {
    const auto blocks = static_cast<Blocks>(12 + random_() % 30);
    const auto running = static_cast<std::int64_t>(1 + random_() % 10);
    return {.step = {.rows_max = 256,
                     .sequences_max = running,
                     .logit_rows_max = running + static_cast<std::int64_t>(random_() % 10),
                     .kv_blocks = blocks,
                     .table_blocks_max = 3 * blocks},
            .context_length = 300,
            .vocab = 100,
            .waiting_max = 1000};
  }

  void arrive() {
    if (random_() % 3 == 0) {
      Wanted wanted{.prompt = static_cast<Tokens>(1 + random_() % 150),
                    .max_tokens = static_cast<std::int64_t>(1 + random_() % 100),
                    .prompt_logprobs = random_() % 4 == 0,
                    .tokens = {}};
      Sampling sampling;
      sampling.max_tokens = wanted.max_tokens;
      sampling.prompt_logprobs = wanted.prompt_logprobs;
      // Few beginnings, so that many prompts share one.
      wanted.tokens = prompt_from(static_cast<std::int64_t>(random_() % 3), wanted.prompt);
      wanted.tokens.back() = static_cast<std::int64_t>(random_() % 100);
      const auto added = scheduler_.add(wanted.tokens, sampling);
      ASSERT_TRUE(added) << added.error().message;
      wanted_[added->id] = wanted;
      ++added_;
    }
    if (random_() % 20 == 0 && !wanted_.empty()) {
      auto victim = wanted_.begin();
      std::advance(victim, random_() % wanted_.size());
      ASSERT_TRUE(scheduler_.cancel(victim->first));
      wanted_.erase(victim);
      ++cancelled_;
    }
  }

  void one_step() {
    const auto budget =
        static_cast<Tokens>(1 + random_() % (random_() % 2 == 0 ? 100 : kBudgetMax));
    const StepPlan* plan = &scheduler_.plan_step(budget);
    ASSERT_EQ(plan->empty(), wanted_.empty()) << "work is left and the step is empty";
    if (plan->empty()) return;
    Tokens decodes = 0;
    for (const StepEntry& entry : scheduler_.entries()) decodes += entry.rows == 1 ? 1 : 0;
    EXPECT_LE(plan->rows(), std::max(budget, decodes + kStepRowsMin));
    for (; plan != nullptr && !testing::Test::HasFatalFailure(); ++decoded_on_) {
      play(*plan);
      plan = random_() % 4 == 0 ? nullptr : scheduler_.plan_next_decode();
    }
    --decoded_on_;
  }

  void play(const StepPlan& plan) {
    const Status sound = check_step(plan, scheduler_.limits().step);
    ASSERT_TRUE(sound) << sound.error().message;
    check_blocks(plan);
    check_order(plan.rows());
    std::vector<StepOutcome> outcomes;
    for (const StepEntry& entry : scheduler_.entries()) outcomes.push_back(outcome_of(entry));
    std::vector<Ended> ended;
    scheduler_.finish_step(outcomes, ended);
    for (const Ended& end : ended) check_end(end);
  }

  // Plays the ranks: writes each row's token where its K and V go, then looks whether all tokens
  // that the row attends to are there.
  void check_blocks(const StepPlan& plan) {
    for (const StepSequence& sequence : plan.sequences) {
      for (std::int32_t i = 0; i < sequence.tokens; ++i) {
        slot(plan, sequence, sequence.position + i) =
            plan.ids[static_cast<std::size_t>(sequence.row + i)];
      }
    }
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      const auto& expected = wanted_[scheduler_.entries()[i].sequence->id].tokens;
      const StepSequence& sequence = plan.sequences[i];
      for (std::int32_t at = 0; at < sequence.position + sequence.tokens; ++at) {
        ASSERT_EQ(slot(plan, sequence, at), expected[static_cast<std::size_t>(at)]) << at;
      }
    }
    const std::set<std::int32_t> seen(plan.blocks.begin(), plan.blocks.end());
    EXPECT_LE(static_cast<Blocks>(seen.size()), scheduler_.blocks_used());
    shared_ += plan.blocks.size() - seen.size();
  }

  std::int64_t& slot(const StepPlan& plan, const StepSequence& sequence, std::int32_t position) {
    const auto block = plan.blocks[static_cast<std::size_t>(
        sequence.blocks_begin + position / static_cast<std::int32_t>(kKvBlockTokens))];
    return written_[block * kKvBlockTokens + position % kKvBlockTokens];
  }

  // Nobody starts before someone who came earlier.
  void check_order(Tokens rows) {
    for (const StepEntry& entry : scheduler_.entries()) wanted_[entry.sequence->id].started = true;
    bool waiting = false;
    for (const auto& [id, wanted] : wanted_) {
      EXPECT_FALSE(waiting && wanted.started) << id << " overtook";
      waiting |= !wanted.started;
    }
    const bool has_oldest = std::ranges::any_of(scheduler_.entries(), [&](const StepEntry& entry) {
      return entry.sequence->id == wanted_.begin()->first;
    });
    rows_without_oldest_ = has_oldest ? 0 : rows_without_oldest_ + rows;
    EXPECT_LE(rows_without_oldest_, kBudgetMax) << "the oldest waits";
    held_ += has_oldest ? 0 : 1;
  }

  StepOutcome outcome_of(const StepEntry& entry) {
    Wanted& wanted = wanted_[entry.sequence->id];
    EXPECT_TRUE(entry.logits_count > 0 || !entry.samples);
    wanted.logprobs += entry.logits_count - (entry.samples ? 1 : 0);
    wanted.generated += entry.samples ? 1 : 0;
    if (!entry.samples) return {.token = -1};
    wanted.tokens.push_back(static_cast<std::int64_t>(random_() % 2));
    return {.token = static_cast<std::int32_t>(wanted.tokens.back())};
  }

  void check_end(const Ended& end) {
    const Wanted wanted = wanted_[end.id];
    EXPECT_EQ(wanted.generated, std::min(wanted.max_tokens, 300 - wanted.prompt));
    EXPECT_EQ(wanted.logprobs, wanted.prompt_logprobs ? wanted.prompt - 1 : 0);
    wanted_.erase(end.id);
    ended_.insert(end.id);
  }

  std::mt19937 random_;
  Scheduler scheduler_;
  std::map<std::uint64_t, Wanted> wanted_;
  std::set<std::uint64_t> ended_;
  std::size_t added_ = 0;
  std::size_t cancelled_ = 0;
  std::map<std::int64_t, std::int64_t> written_;  // by block and offset: the token
  std::size_t shared_ = 0;                        // entries of block tables
  int decoded_on_ = 0;
  Tokens rows_without_oldest_ = 0;
  int held_ = 0;  // steps without the oldest
};

TEST(Scheduler, ThousandsOfRandomStepsKeepEveryPromise) {
  std::int64_t preemptions = 0;
  std::size_t shared = 0;
  int decoded_on = 0;
  int held = 0;
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Storm storm(seed);
    storm.run();
    preemptions += storm.preemptions();
    shared += storm.shared();
    decoded_on += storm.decoded_on();
    held += storm.held();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(preemptions, 20);
  EXPECT_GT(shared, 1000U);
  EXPECT_GT(decoded_on, 100);
  EXPECT_GT(held, 10);
}

}  // namespace
}  // namespace plimsoll
