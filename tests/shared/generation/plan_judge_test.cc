#include "shared/generation/plan_judge.h"

#include <gtest/gtest.h>

#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"

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
