#include "shared/generation/plan_judge.h"

#include <gtest/gtest.h>

#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_golden.h"

namespace plimsoll {
namespace {

class PlanJudge : public ::testing::Test {
 protected:
  // The reason of one option's change.
  std::optional<Reason> reason(const std::string& name, std::vector<std::string> before,
                               std::vector<std::string> after) {
    const LaunchJudge judge = plan_judge({.machine = machine_,
                                          .model = model_,
                                          .draft = nullptr,
                                          .before = test_options(std::move(before)),
                                          .after = test_options(std::move(after))});
    Difference difference;
    difference.name = name;
    difference.before = "what was before";
    return judge(difference);
  }
  Machine machine_ = test_machine(4 * kGiB);
  ModelSpec model_ = make_llama_spec(smollm2_shape());
};

TEST_F(PlanJudge, TheOptionThatMakesItUnfitIsCertain) {
  const std::optional<Reason> found = reason("device-memory", {"--device-memory=1GiB"},
                                             {"--device-memory=90MiB", "--context-length=4096"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->suspicion, 1.0);
  EXPECT_NE(found->text.find("room for KV"), std::string::npos) << found->text;
  EXPECT_NE(found->text.find("-> -"), std::string::npos) << found->text;
  EXPECT_NE(found->text.find("with what was before it would fit"), std::string::npos);
}

TEST_F(PlanJudge, AnOptionThatOnlyShrinksKvSaysByHowMuch) {
  const std::optional<Reason> found =
      reason("max-total-tokens", {"--device-memory=1GiB", "--max-total-tokens=8192"},
             {"--device-memory=1GiB", "--max-total-tokens=4096", "--context-length=2048"});
  ASSERT_TRUE(found);
  EXPECT_GT(found->suspicion, 0.5);
  EXPECT_LT(found->suspicion, 1.0);
  EXPECT_NE(found->text.find("blocks ->"), std::string::npos) << found->text;
}

// The story: two changes at once, of which one decides.
TEST(PlanJudgeOfDevices, SaysWhatTheFractionGivesAndWhatTheOtherChangeFrees) {
  Machine machine = test_machine(512 * kGiB);
  Device device;
  device.memory_total = device.memory_free = 96 * kGiB;
  machine.devices.assign(8, device);
  const ModelSpec model = *golden_model("kimi-k2.5");
  const LaunchJudge judge = plan_judge(
      {.machine = machine,
       .model = model,
       .draft = nullptr,
       .before = test_options({"--tp=8", "--assume=weights=72.29GiB", "--assume=free=94GiB",
                               "--mem-fraction-static=0.88"}),
       .after = test_options({"--tp=8", "--assume=weights=72.29GiB", "--assume=free=94GiB",
                              "--mem-fraction-static=0.55", "--cuda-graph-max-bs=128"})});
  Difference change;
  change.name = "mem-fraction-static";
  change.before = "0.880";
  const std::optional<Reason> fraction = judge(change);
  ASSERT_TRUE(fraction);
  EXPECT_EQ(fraction->text, "KV 10.43 GiB -> -20.59 GiB: with 0.880 it would fit");
  EXPECT_EQ(fraction->suspicion, 1.0);
  change.name = "cuda-graph-max-bs";
  change.before = "auto";
  const std::optional<Reason> graphs = judge(change);
  ASSERT_TRUE(graphs);
  EXPECT_EQ(graphs->text.find("graphs 1.4"), 0U) << graphs->text;  // of 256 requests, as it ran
  EXPECT_NE(graphs->text.find("-> 789.9 MiB; KV is the same; it does not fit either way"),
            std::string::npos)
      << graphs->text;
  EXPECT_LT(graphs->suspicion, 0.5);
}

TEST_F(PlanJudge, WhatThePlanDoesNotSeeIsLeftToGeneralRules) {
  EXPECT_FALSE(reason("port", {"--port=1"}, {"--port=2"}));
  EXPECT_FALSE(reason("no-such-option", {}, {}));
  const LaunchJudge judge = plan_judge(
      {.machine = machine_, .model = model_, .draft = nullptr, .before = {}, .after = {}});
  Difference environment;
  environment.kind = DifferenceKind::environment;
  environment.name = "tp";
  EXPECT_FALSE(judge(environment));
}

}  // namespace
}  // namespace plimsoll
