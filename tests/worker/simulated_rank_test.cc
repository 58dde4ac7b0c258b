#include "worker/simulated_rank.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "kernels/simulated/fixed_tokens.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kVocab = 163'840;
constexpr Blocks kBlocks = 1024;

// What Kimi-K2.5 at tp 8 would have.
RankPlan large_plan() {
  RankPlan plan;
  plan.budget = 94 * kGiB;
  plan.rows = {{Term::weights, 72 * kGiB, "", Trust::computed},
               {Term::workspace, kGiB, "", Trust::computed},
               {Term::process, kGiB, "", Trust::assumed},
               {Term::collective, kGiB, "", Trust::margin},
               {Term::kv, 10 * kGiB, "", Trust::computed}};
  return plan;
}

class SimulatedRankTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<SimulatedRank>> load(std::string_view simulation = "{}") {
    return SimulatedRank::load({.memory = 94 * kGiB,
                                .simulation = *parse_simulation(simulation),
                                .plan = large_plan(),
                                .kv_blocks = kBlocks,
                                .rows_max = 512,
                                .logit_rows_max = 64,
                                .context_length = 4096,
                                .vocab = kVocab,
                                .pause = [this](Duration duration) { paused_ += duration; }},
                               *collective_,
                               [this](const LoadProgress& at) { progress_.push_back(at); });
  }

  std::unique_ptr<Collective> collective_ = make_single_collective();
  std::vector<LoadProgress> progress_;
  Duration paused_{0};
};

StepPlan step_of(std::int32_t token, std::int32_t position, std::int32_t block) {
  StepPlan plan;
  plan.ids = {token};
  plan.sequences = {
      {.row = 0, .tokens = 1, .position = position, .blocks_begin = 0, .blocks_count = 1}};
  plan.blocks = {block};
  plan.logit_rows = {0};
  return plan;
}

std::int64_t likeliest(TensorView logits, std::int64_t row) {
  const float* begin = logits.row(row);
  return std::max_element(begin, begin + logits.cols) - begin;
}

TEST_F(SimulatedRankTest, TakesWhatIsPlannedAndHoldsNoMemoryForIt) {
  auto rank = load();
  ASSERT_TRUE(rank) << rank.error().message;
  ASSERT_TRUE((*rank)->allocate_kv({.blocks = kBlocks, .sequences_max = 16}));
  const Measured measured = (*rank)->measure();
  EXPECT_EQ(measured.terms.at("weights"), 72 * kGiB);
  EXPECT_EQ(measured.terms.at("workspace"), kGiB);
  EXPECT_FALSE(measured.terms.contains("collective")) << "a margin is nobody's";
  EXPECT_EQ(measured.kv_committed, 10 * kGiB);
  EXPECT_FALSE(measured.terms.contains("process")) << "that is for costs without a row";
  EXPECT_EQ(measured.free, (94 - 72 - 1 - 10) * kGiB);
  EXPECT_EQ(progress_.back().done, 72 * kGiB);
  EXPECT_EQ(progress_.back().total, 72 * kGiB);
  EXPECT_EQ((*rank)->description(), "simulated, 94.00 GiB");
}

TEST_F(SimulatedRankTest, AnswersTokensThatFollowFromTheLastAndItsPosition) {
  auto rank = load();
  ASSERT_TRUE(rank);
  ASSERT_TRUE((*rank)->allocate_kv({.blocks = kBlocks, .sequences_max = 16}));
  StepPlan plan;
  plan.ids = {10, 11, 12, 500};
  plan.sequences = {{.row = 0, .tokens = 3, .position = 40, .blocks_begin = 0, .blocks_count = 2},
                    {.row = 3, .tokens = 1, .position = 7, .blocks_begin = 2, .blocks_count = 1}};
  plan.blocks = {0, 1, 2};
  plan.logit_rows = {1, 2, 3};
  auto logits = (*rank)->run(plan);
  ASSERT_TRUE(logits) << logits.error().message;
  EXPECT_EQ(logits->rows, 3);
  EXPECT_EQ(likeliest(*logits, 0), fixed_token(11, 41, kVocab));
  EXPECT_EQ(likeliest(*logits, 1), fixed_token(12, 42, kVocab));
  EXPECT_EQ(likeliest(*logits, 2), fixed_token(500, 7, kVocab));
  // The same memory says other things in the next step, and nothing of the last.
  logits = (*rank)->run(step_of(3, 0, 0));
  ASSERT_TRUE(logits);
  EXPECT_EQ(likeliest(*logits, 0), 4);
  EXPECT_EQ(logits->row(0)[fixed_token(11, 41, kVocab)], 0);
}

TEST_F(SimulatedRankTest, KvIsTouchedWhereTokensWere) {
  auto rank = load();
  ASSERT_TRUE(rank);
  ASSERT_TRUE((*rank)->allocate_kv({.blocks = kBlocks, .sequences_max = 16}));
  EXPECT_EQ((*rank)->kv_blocks_touched(), 0);
  for (const std::int32_t block : {5, 6, 5}) ASSERT_TRUE((*rank)->run(step_of(1, 0, block)));
  EXPECT_EQ((*rank)->kv_blocks_touched(), 2);
  EXPECT_EQ((*rank)->measure().kv_touched, 2 * 10 * kGiB / kBlocks);
}

TEST_F(SimulatedRankTest, PrefaultTouchesAllOfKv) {
  auto rank = load();
  ASSERT_TRUE(rank);
  ASSERT_TRUE((*rank)->allocate_kv({.blocks = kBlocks, .sequences_max = 16, .prefault = true}));
  EXPECT_EQ((*rank)->kv_blocks_touched(), kBlocks);
}

TEST_F(SimulatedRankTest, AnArenaThatOverrunsNamesTheRowOfThePlan) {
  const auto rank = load(R"({"costs": [{"term": "weights", "bytes": "73GiB"}]})");
  ASSERT_FALSE(rank);
  EXPECT_EQ(rank.error().code, Code::internal);
  EXPECT_NE(rank.error().message.find("the plan's row \"weights\" has 77309411328 bytes"),
            std::string::npos)
      << rank.error().message;
}

TEST_F(SimulatedRankTest, HiddenCostsAreMeasuredByTheirNames) {
  const auto rank = load(R"({"costs": [{"term": "context", "bytes": "900MiB"},
                                       {"term": "process", "bytes": "2GiB", "when": "loaded"},
                                       {"term": "neighbour", "bytes": "3GiB",
                                        "when": "loading"}]})");
  ASSERT_TRUE(rank) << rank.error().message;
  const Measured measured = (*rank)->measure();
  EXPECT_EQ(measured.terms.at("context"), 900 * kMiB);
  EXPECT_EQ(measured.terms.at("process"), 2 * kGiB);
  EXPECT_FALSE(measured.terms.contains("neighbour"));
  EXPECT_EQ(measured.neighbours, 3 * kGiB);
  EXPECT_EQ(measured.free, (94 - 72 - 1 - 2 - 3) * kGiB - 900 * kMiB);
}

TEST_F(SimulatedRankTest, WhatComesWithTheFirstStepIsNotThereBefore) {
  auto rank = load(R"({"costs": [{"term": "graphs", "bytes": "2GiB", "when": "first step"}]})");
  ASSERT_TRUE(rank);
  EXPECT_FALSE((*rank)->measure().terms.contains("graphs"));
  ASSERT_TRUE((*rank)->allocate_kv({.blocks = kBlocks, .sequences_max = 16}));
  ASSERT_TRUE((*rank)->run(step_of(1, 0, 0)));
  ASSERT_TRUE((*rank)->run(step_of(1, 0, 0)));
  EXPECT_EQ((*rank)->measure().terms.at("graphs"), 2 * kGiB);
}

TEST_F(SimulatedRankTest, ADeviceThatIsFullEndsTheStepWithItsTerm) {
  auto rank = load(R"({"costs": [{"term": "graphs", "bytes": "20GiB", "when": "first step"}]})");
  ASSERT_TRUE(rank);
  ASSERT_TRUE((*rank)->allocate_kv({.blocks = kBlocks, .sequences_max = 16}));
  const auto logits = (*rank)->run(step_of(1, 0, 0));
  ASSERT_FALSE(logits);
  EXPECT_EQ(logits.error().code, Code::does_not_fit);
  EXPECT_NE(logits.error().message.find("graphs needs 20.00 GiB"), std::string::npos);
}

TEST_F(SimulatedRankTest, LoadingLastsAsLongAsItIsTold) {
  ASSERT_TRUE(load(R"({"load_time": "64s"})"));
  EXPECT_EQ(paused_, seconds(64));
  EXPECT_GT(progress_.size(), 10U);
}

}  // namespace
}  // namespace plimsoll
