#include "shared/memory/memory_plan.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/memory/memory_report.h"
#include "shared/memory/memory_terms.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

MemoryPlan plan_of(const Machine& machine, const ModelSpec& model,
                   std::vector<std::string> flags = {}) {
  const Result<MemoryPlan> plan = plan_memory(machine, model, test_options(std::move(flags)));
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : MemoryPlan{};
}

TEST(MemoryPlan, EachRankThatFitsStaysWithinItsBudgetAndHasTheSameBlocks) {
  std::mt19937_64 random(20261130);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const ModelSpec models[] = {make_llama_spec({.hidden = 128, .kv_heads = 4, .head_dim = 32}),
                              make_llama_spec(smollm2_shape()), make_llama_spec(llama3_8b_shape())};
  constexpr int kRounds = 400 / kBulkDivisor;
  int fitted = 0;
  for (int round = 0; round < kRounds; ++round) {
    const ModelSpec& model = models[round % 3];
    const Machine machine = test_machine(between(64, 64 * 1024) * kMiB, 8);
    std::vector<std::string> flags = {"--tp=" + std::to_string(between(1, 4)),
                                      "--dp=" + std::to_string(between(1, 3))};
    if (between(0, 1) == 1) flags.push_back("--context-length=" + std::to_string(between(1, 8192)));
    if (between(0, 2) == 2)
      flags.push_back("--max-running-requests=" + std::to_string(between(1, 99)));
    if (between(0, 2) == 2)
      flags.push_back("--device-memory=" + std::to_string(between(1, 9999)) + "MiB");
    const MemoryPlan plan = plan_of(machine, model, flags);
    ASSERT_EQ(std::ssize(plan.ranks), plan.tp * plan.dp);
    if (plan.refusal) continue;
    ++fitted;
    Bytes all = 0;
    for (const RankPlan& rank : plan.ranks) {
      EXPECT_LE(rank.total(), rank.budget) << "round " << round;
      EXPECT_EQ(rank.bytes(Term::kv), plan.decisions.kv_blocks * kv_block_bytes(model, rank.shard));
      EXPECT_EQ(rank.rows.back().term, Term::kv);
      all += rank.total();
    }
    EXPECT_LE(all, machine.memory_available) << "round " << round;
    EXPECT_GE(plan.decisions.kv_blocks * kKvBlockTokens, plan.decisions.context_length);
    EXPECT_LE(plan.decisions.kv_blocks * kKvBlockTokens,
              plan.decisions.max_running_requests *
                  round_up(plan.decisions.context_length, kKvBlockTokens));
  }
  EXPECT_GT(fitted, kRounds / 4);
}

TEST(MemoryPlan, MoreMemoryNeverGivesFewerBlocks) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{}, {"--context-length=3000"}, {"--max-running-requests=5"}}) {
    Blocks before = 0;
    Tokens context_before = 0;
    for (Bytes available = 300 * kMiB; available < 12 * kGiB;
         available += 37 * kMiB * kBulkDivisor) {
      const MemoryPlan plan = plan_of(test_machine(available), model, flags);
      const Blocks blocks = plan.refusal ? 0 : plan.decisions.kv_blocks;
      EXPECT_GE(blocks, before) << available;
      EXPECT_GE(plan.refusal ? 0 : plan.decisions.context_length, context_before) << available;
      before = blocks;
      context_before = plan.refusal ? 0 : plan.decisions.context_length;
    }
    EXPECT_GT(before, 0);
  }
}

TEST(MemoryPlan, TakesNoMoreThanDemandWhereMemoryIsPlenty) {
  const MemoryPlan plan =
      plan_of(test_machine(512 * kGiB), make_llama_spec(smollm2_shape()), {"--tp=3"});
  EXPECT_EQ(plan.decisions.context_length, 8192);
  EXPECT_EQ(plan.decisions.max_running_requests, 16);
  EXPECT_EQ(plan.decisions.kv_blocks * kKvBlockTokens, 16 * 8192);
  EXPECT_TRUE(plan.decisions.notes.empty());
}

TEST(MemoryPlan, LowersTheContextBeforeTheRequestsAndSaysSo) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  const MemoryPlan lowered = plan_of(test_machine(4 * kGiB), model);
  EXPECT_LT(lowered.decisions.context_length, 8192);
  EXPECT_GT(lowered.decisions.context_length, 4096);
  EXPECT_EQ(lowered.decisions.max_running_requests, 16);
  ASSERT_EQ(lowered.decisions.notes.size(), 1U);
  const MemoryPlan tight = plan_of(test_machine(1 * kGiB), model);
  EXPECT_EQ(tight.decisions.context_length, 4096);
  EXPECT_LT(tight.decisions.max_running_requests, 16);
}

TEST(MemoryPlan, NeverTakesMoreThanHalfUnlessTold) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  const MemoryPlan plan = plan_of(test_machine(4 * kGiB), model);
  EXPECT_EQ(plan.budget_total, 2 * kGiB);
  const MemoryPlan told = plan_of(test_machine(4 * kGiB), model, {"--device-memory=3GiB"});
  EXPECT_EQ(told.budget_total, 3 * kGiB);
  EXPECT_GT(told.decisions.kv_blocks, plan.decisions.kv_blocks);
}

TEST(MemoryPlan, ReplicasOnCpusShareTheirWeights) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  const MemoryPlan one = plan_of(test_machine(16 * kGiB), model, {"--tp=2"});
  const MemoryPlan three = plan_of(test_machine(16 * kGiB), model, {"--tp=2", "--dp=3"});
  for (const RankPlan& rank : three.ranks) {
    const RankPlan& alone = one.ranks[static_cast<std::size_t>(rank.rank)];
    EXPECT_EQ(rank.weight_sharers, 3);
    EXPECT_EQ(rank.packed_weights(), alone.bytes(Term::weights));
    EXPECT_EQ(rank.bytes(Term::weights), ceil_div(alone.bytes(Term::weights), Bytes{3}));
  }
  EXPECT_NE(three.ranks[0].rows[0].formula.find("shared by 3 replicas"), std::string::npos);
  const MemoryPlan cuda =
      plan_of(test_machine(16 * kGiB), model, {"--dp=2", "--devices=cuda:host"});
  EXPECT_EQ(cuda.ranks[0].weight_sharers, 1) << "memory of a device is nobody else's";
}

TEST(MemoryPlan, OfACpuRankWhatIsFreeCanBeAssumedAndWhatItHasNotCannot) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  const Machine machine = test_machine(64 * kGiB);
  const MemoryPlan plan = plan_of(machine, model, {"--assume=free=300MiB"});
  EXPECT_EQ(plan.ranks[0].budget, 300 * kMiB);
  EXPECT_EQ(plan.budget_source, "--assume free");
  for (const char* flag : {"--assume=graphs=1GiB", "--assume=total=1GiB", "--assume=margin=1MiB"}) {
    const auto refused = plan_memory(machine, model, test_options({flag}));
    ASSERT_FALSE(refused) << flag;
    EXPECT_NE(refused.error().message.find("ranks"), std::string::npos);
  }
}

void expect_golden(const std::string& name, const std::string& content) {
  const std::filesystem::path path = golden_path("plans/" + name);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file(path, content)) << path;
  }
  EXPECT_EQ(read_test_file(path), content) << "run with UPDATE_GOLDEN=1 and read the difference";
}

TEST(MemoryPlan, RefusesWithTheArithmeticAndWhatWouldWork) {
  const MemoryPlan plan = plan_of(test_machine(4 * kGiB), make_llama_spec(smollm2_shape()),
                                  {"--tp=2", "--device-memory=128MiB", "--context-length=8192"});
  ASSERT_TRUE(plan.refusal);
  EXPECT_EQ(plan.refusal->code, Code::does_not_fit);
  EXPECT_FALSE(plan.ranks.empty());  // so that the ledger can be shown
  expect_golden("refused.txt", plan.refusal->message + "\n");
}

TEST(MemoryPlan, RefusesAModelThatIsTooLargeForTheMachine) {
  const MemoryPlan plan = plan_of(test_machine(4 * kGiB), make_llama_spec(llama3_8b_shape()));
  ASSERT_TRUE(plan.refusal);
  expect_golden("too-large.txt", plan.refusal->message + "\n");
}

TEST(MemoryPlan, ALargerModelOverEightRanksIsAsRecorded) {
  const MemoryPlan plan =
      plan_of(test_machine(64 * kGiB, 16, 2), make_llama_spec(llama3_8b_shape()), {"--tp=8"});
  EXPECT_FALSE(plan.refusal);
  expect_golden("llama3-8b-tp8.txt", memory_report(plan));
}

TEST(MemoryPlan, RefusesOptionsThatContradictTheModel) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  const Machine machine = test_machine(4 * kGiB);
  const Result<MemoryPlan> ranks = plan_memory(machine, model, test_options({"--tp=10"}));
  ASSERT_FALSE(ranks);
  EXPECT_EQ(ranks.error().code, Code::invalid);
  const Result<MemoryPlan> context =
      plan_memory(machine, model, test_options({"--context-length=8193"}));
  ASSERT_FALSE(context);
  EXPECT_NE(context.error().message.find("8,192"), std::string::npos);
}

TEST(MemoryPlan, IsTheSameEachTime) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  const auto once = [&] {
    return dump_json(memory_plan_to_json(plan_of(test_machine(4 * kGiB), model, {"--tp=3"})));
  };
  EXPECT_EQ(once(), once());
}

TEST(MemoryPlan, TakesLessThanTenMillisecondsForEightRanks) {
  SKIP_IN_SANITIZER_BUILDS("its speed is not the product's");
  const ModelSpec model = make_llama_spec(llama3_8b_shape());
  const OptionSet options = test_options({"--tp=8"});
  auto fastest = std::chrono::nanoseconds::max();
  for (int round = 0; round < 10; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const Result<MemoryPlan> plan = plan_memory(test_machine(64 * kGiB, 8), model, options);
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(plan);
    fastest = std::min(fastest, took);
  }
  EXPECT_LT(fastest, std::chrono::milliseconds(10));
}

TEST(MemoryPlan, TheDocumentsExampleIsWhatThePlanSays) {
  const MemoryPlan plan = plan_of(test_machine(2 * kGiB), make_llama_spec(smollm2_shape()),
                                  {"--tp=2", "--context-length=2048"});
  const std::string document =
      read_test_file(golden_path("").parent_path() / "../../shared/memory/MEMORY.md");
  EXPECT_NE(document.find("```\n" + memory_report(plan) + "```"), std::string::npos)
      << memory_report(plan);
}

}  // namespace
}  // namespace plimsoll
