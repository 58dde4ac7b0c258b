// Properties of plans for devices, over many random machines and options.

#include <random>

#include <gtest/gtest.h>

#include "shared/memory/memory_plan.h"
#include "shared/options/fraction.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_chance.h"
#include "tests/support/plan_golden.h"

namespace plimsoll {
namespace {

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

// What is auto grows too: requests, the step, graphs, and all of them at once where a device is
// large enough for the next defaults.
TEST(PlanProperties, MoreMemoryNeverGivesFewerTokensWhereAllIsAuto) {
  const struct {
    const char* model;
    std::int64_t tp;
    const char* weights;
    double from;  // GiB
    double to;
  } cases[] = {
      {"llama-8b", 1, "12GiB", 13.5, 24},  {"llama-8b", 1, "15GiB", 34, 39},
      {"qwen3-235b", 4, "50GiB", 52, 66},  {"kimi-k2.5", 8, "72.29GiB", 74, 94},
      {"llama-70b", 8, "17GiB", 158, 166}, {"llama-70b", 4, "33GiB", 34, 40},
      {"deepseek-r1", 2, "50GiB", 52, 66},
  };
  for (const auto& one : cases) {
    const ModelSpec model = *golden_model(one.model);
    for (const char* rule : {"--dp=1", "--gpu-memory-utilization=0.97"}) {
      Tokens before = 0;
      const auto end = static_cast<Bytes>(one.to * kGiB);
      for (auto size = static_cast<Bytes>(one.from * kGiB); size < end; size += 41 * kMiB + 77) {
        const MemoryPlan plan =
            plan_of(gpus_of(std::vector<Bytes>(static_cast<std::size_t>(one.tp), size)), model,
                    {"--tp=" + std::to_string(one.tp),
                     std::string("--assume=weights=") + one.weights, rule});
        const Tokens tokens = plan.refusal ? 0 : plan.kv.tokens;
        ASSERT_GE(tokens, before) << one.model << " " << rule << " " << size;
        before = tokens;
      }
      EXPECT_GT(before, 4096) << one.model;
    }
  }
}

TEST(PlanProperties, RaisingUtilizationNeverShrinksKvWhereAllIsAuto) {
  for (const char* name : {"llama-8b", "kimi-k2.5", "qwen3-235b"}) {
    const ModelSpec model = *golden_model(name);
    Tokens before = 0;
    for (int thousandths = 500; thousandths < 990; ++thousandths) {
      const MemoryPlan plan =
          plan_of(gpus_of(std::vector<Bytes>(4, 48 * kGiB)), model,
                  {"--tp=4", "--assume=weights=26GiB",
                   "--gpu-memory-utilization=0." + std::to_string(thousandths)});
      const Tokens tokens = plan.refusal ? 0 : plan.kv.tokens;
      if (plan.refusal && before > 0) break;  // more than is free
      ASSERT_GE(tokens, before) << name << " " << thousandths;
      before = tokens;
    }
    EXPECT_GT(before, 4096) << name;
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

TEST(PlanProperties, RowsAndWhatIsSpareSumToTheBudgetWhateverTheVerdict) {
  Chance chance(kSeed);
  int refused = 0;
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    const std::int64_t tp = std::int64_t{1} << chance.pick(4);
    const ModelSpec model = chance.model();
    const std::vector<std::string> flags = with(chance.flags(tp), rule_of(chance));
    const MemoryPlan plan = plan_of(gpus_of(chance.sizes(tp)), model, flags);
    refused += plan.refusal ? 1 : 0;
    Bytes budgets = 0;
    const Json json = memory_plan_to_json(plan);
    for (std::size_t i = 0; i < plan.ranks.size(); ++i) {
      const RankPlan& rank = plan.ranks[i];
      const Json& one = json.find("ranks")->as_array()[i];
      Bytes sum = 0;
      for (const Json& row : one.find("rows")->as_array()) {
        EXPECT_GE(row.find("bytes")->as_int(), 0);
        sum += row.find("bytes")->as_int();
      }
      EXPECT_EQ(sum + one.find("spare")->as_int(), one.find("budget")->as_int());
      EXPECT_EQ(rank.budget + rank.held_by_others, rank.device_total);
      if (!plan.refusal) {
        EXPECT_LE(sum, rank.budget);
      }
      budgets += rank.budget;
    }
    EXPECT_EQ(budgets, plan.budget_total);
  }
  EXPECT_GT(refused, 10);
  EXPECT_LT(refused, 90);
}

TEST(PlanProperties, MoreMemoryOfAnyDeviceNeverGivesFewerTokensWhateverTheOptions) {
  Chance chance(kSeed + 1);
  int grew = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed + 1 << " round " << round);
    const std::int64_t tp = std::int64_t{1} << chance.pick(4);
    const ModelSpec model = chance.model();
    const std::vector<std::string> flags = with(chance.flags(tp), rule_of(chance));
    std::vector<Bytes> sizes = chance.sizes(tp);
    Tokens before = 0;
    for (int step = 0; step < 5; ++step) {
      const Tokens tokens = tokens_of(plan_of(gpus_of(sizes), model, flags));
      if (before > 0) {
        EXPECT_GE(tokens, before) << step;
      }
      grew += tokens > before && before > 0 ? 1 : 0;
      before = tokens;
      if (chance.pick(2) == 0) {
        for (Bytes& size : sizes) size += static_cast<Bytes>(chance.between(1, 30)) * kGiB;
      } else {
        sizes[static_cast<std::size_t>(chance.pick(tp))] += 10 * kGiB;
      }
    }
  }
  EXPECT_GT(grew, 20);
}

TEST(PlanProperties, RaisingAFractionNeverShrinksKvWhateverElseIsGiven) {
  Chance chance(kSeed + 2);
  int grew = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed + 2 << " round " << round);
    const std::int64_t tp = std::int64_t{1} << chance.pick(4);
    const ModelSpec model = chance.model();
    const std::vector<std::string> flags = chance.flags(tp);
    const Machine machine = gpus_of(chance.sizes(tp));
    const std::string option =
        chance.pick(2) == 0 ? "--mem-fraction-static=0." : "--gpu-memory-utilization=0.";
    Tokens before = 0;
    for (std::int64_t thousandths = 300 + chance.pick(40); thousandths < 990; thousandths += 43) {
      const MemoryPlan plan =
          plan_of(machine, model, with(flags, option + std::to_string(thousandths)));
      if (plan.refusal) continue;
      EXPECT_GE(plan.kv.tokens, before) << option << thousandths;
      grew += plan.kv.tokens > before ? 1 : 0;
      before = plan.kv.tokens;
    }
  }
  EXPECT_GT(grew, 50);
}

TEST(PlanProperties, TheEndsOfEveryWindowAreExact) {
  Chance chance(kSeed + 3);
  int checked = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed + 3 << " round " << round);
    const std::int64_t tp = std::int64_t{1} << chance.pick(4);
    const ModelSpec model = chance.model();
    const std::vector<std::string> without = chance.flags(tp);
    const std::string rule = rule_of(chance);
    checked += check_ends(gpus_of(chance.sizes(tp)), model, without, rule);
  }
  EXPECT_GT(checked, 100);
}

TEST(PlanProperties, TheyAreExactAlsoWhereTheRestIsLeftToAuto) {
  Chance chance(kSeed + 4);
  int checked = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed + 4 << " round " << round);
    const std::int64_t tp = std::int64_t{1} << chance.pick(4);
    const ModelSpec model = chance.model();
    std::vector<std::string> without = {"--tp=" + std::to_string(tp),
                                        "--assume=weights=" + gib(chance.between(4, 60))};
    if (chance.pick(3) == 0 && model.experts.count > 0) {
      without.push_back("--ep=" + std::to_string(tp));
    }
    if (chance.pick(3) == 0) without.push_back("--cuda-graph-max-bs=0");
    const std::string rule = rule_of(chance);
    checked += check_ends(gpus_of(chance.sizes(tp)), model, without, rule);
  }
  EXPECT_GT(checked, 100);
}

TEST(PlanProperties, TheyAreExactOnCpus) {
  Chance chance(kSeed + 5);
  const ModelSpec model = make_llama_spec(smollm2_shape());
  int checked = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed + 5 << " round " << round);
    const Machine machine = test_machine(static_cast<Bytes>(chance.between(300, 6000)) * kMiB, 8);
    std::vector<std::string> without = {"--tp=" + std::to_string(1 + chance.pick(3)),
                                        "--dp=" + std::to_string(1 + chance.pick(2))};
    if (chance.pick(2) == 0)
      without.push_back("--context-length=" + std::to_string(32 + chance.pick(8000)));
    if (chance.pick(3) == 0)
      without.push_back("--max-running-requests=" + std::to_string(1 + chance.pick(40)));
    if (chance.pick(3) == 0)
      without.push_back("--chunked-prefill-size=" + std::to_string(16 << chance.pick(9)));
    if (chance.pick(3) == 0)
      without.push_back("--max-total-tokens=" + std::to_string(64 + chance.pick(60'000)));
    if (chance.pick(3) == 0) without.emplace_back("--kv-cache-dtype=int8");
    std::string rule = rule_of(chance);
    if (rule == "--dp=1")
      rule = "--device-memory=" + std::to_string(100 + chance.pick(900)) + "MiB";
    if (rule.starts_with("--kv-cache-bytes")) {
      rule = "--kv-cache-bytes=" + std::to_string(10 + chance.pick(500)) + "MiB";
    }
    checked += check_ends(machine, model, without, rule);
  }
  EXPECT_GT(checked, 50);
}

}  // namespace
}  // namespace plimsoll
