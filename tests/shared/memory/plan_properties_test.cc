// Properties of plans for devices, over many random machines and options.

#include <random>

#include <gtest/gtest.h>

#include "shared/memory/memory_plan.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_golden.h"

namespace plimsoll {
namespace {

constexpr std::uint64_t kSeed = 20261130;

Machine gpus_of(std::vector<Bytes> sizes) {
  Machine machine = test_machine(256 * kGiB, 8);
  for (const Bytes size : sizes) {
    Device device;
    device.name = "GPU";
    device.memory_total = device.memory_free = size;
    device.compute_major = 9;
    device.multiprocessors = 132;
    machine.devices.push_back(device);
  }
  return machine;
}

MemoryPlan plan_of(const Machine& machine, const ModelSpec& model, std::vector<std::string> flags) {
  const Result<MemoryPlan> plan = plan_memory(machine, model, test_options(std::move(flags)));
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : MemoryPlan{};
}

std::string gib(double value) { return std::to_string(value) + "GiB"; }

TEST(PlanProperties, EachLedgerStaysWithinItsBudgetAndAllRanksHaveTheSameBlocks) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const ModelSpec models[] = {*golden_model("kimi-k2.5"), *golden_model("llama-70b"),
                              *golden_model("qwen3-235b")};
  int fitted = 0;
  for (int round = 0; round < 60; ++round) {
    const std::int64_t tp = std::int64_t{1} << static_cast<int>(between(0, 3.99));
    std::vector<Bytes> sizes;
    for (std::int64_t i = 0; i < tp; ++i) {
      sizes.push_back(static_cast<Bytes>(between(20, 140)) * kGiB);
    }
    std::vector<std::string> flags = {"--tp=" + std::to_string(tp),
                                      "--assume=weights=" + gib(between(5, 60))};
    const char* rules[] = {
        "", "--mem-fraction-static=", "--gpu-memory-utilization=", "--kv-cache-bytes="};
    const auto rule = static_cast<std::size_t>(between(0, 3.99));
    if (rule == 3) flags.push_back(rules[rule] + gib(between(1, 40)));
    if (rule == 1 || rule == 2) {
      flags.push_back(rules[rule] + std::to_string(between(0.2, 0.95)).substr(0, 5));
    }
    const MemoryPlan plan = plan_of(gpus_of(sizes), models[round % 3], flags);
    if (plan.refusal) {
      EXPECT_GE(plan.kv.tokens, 0) << "round " << round;
      continue;
    }
    ++fitted;
    for (const RankPlan& rank : plan.ranks) {
      EXPECT_LE(rank.total(), rank.budget) << "round " << round;
      EXPECT_EQ(rank.bytes(Term::kv), plan.kv.blocks * 32 * plan.kv.bytes_per_token);
      EXPECT_GT(rank.bytes(Term::margin), 0);
      EXPECT_GT(rank.bytes(Term::graphs), 0);  // a term that is needed is never nothing
      EXPECT_EQ(rank.rows.back().term, Term::kv);
    }
    EXPECT_GE(plan.kv.tokens, plan.decisions.context_length) << "round " << round;
  }
  EXPECT_GT(fitted, 10);
}

TEST(PlanProperties, MoreMemoryNeverGivesFewerTokens) {
  const ModelSpec model = *golden_model("llama-8b");
  for (const std::string& rule :
       {std::string("--dp=1"), std::string("--mem-fraction-static=0.9"),
        std::string("--gpu-memory-utilization=0.9"), std::string("--context-length=5000")}) {
    Tokens before = 0;
    for (Bytes size = 17 * kGiB; size < 90 * kGiB; size += 2337 * kMiB) {
      const MemoryPlan plan = plan_of(
          gpus_of({size}), model,
          {"--assume=weights=15GiB", rule, "--chunked-prefill-size=2048", "--cuda-graph-max-bs=8"});
      const Tokens tokens = plan.refusal ? 0 : plan.kv.tokens;
      EXPECT_GE(tokens, before) << rule << " " << size;
      before = tokens;
    }
    EXPECT_GT(before, 0) << rule;
  }
}

TEST(PlanProperties, RaisingTheFractionNeverShrinksKvWhileItFits) {
  const ModelSpec model = *golden_model("llama-8b");
  for (const std::string& option :
       {std::string("--mem-fraction-static="), std::string("--gpu-memory-utilization=")}) {
    Tokens before = 0;
    int fitted = 0;
    for (int thousandths = 100; thousandths <= 990; thousandths += 27) {
      const MemoryPlan plan =
          plan_of(gpus_of({48 * kGiB}), model,
                  {"--assume=weights=15GiB", option + "0." + std::to_string(thousandths)});
      if (plan.refusal) continue;
      EXPECT_GE(plan.kv.tokens, before) << option << thousandths;
      before = plan.kv.tokens;
      ++fitted;
    }
    EXPECT_GT(fitted, 10) << option;
  }
}

TEST(PlanProperties, TheSameInputsGiveTheSamePlan) {
  const ModelSpec model = *golden_model("kimi-k2.5");
  const auto once = [&] {
    return dump_json(memory_plan_to_json(plan_of(gpus_of(std::vector<Bytes>(8, 96 * kGiB)), model,
                                                 {"--tp=8", "--assume=weights=72GiB"})));
  };
  EXPECT_EQ(once(), once());
}

}  // namespace
}  // namespace plimsoll
