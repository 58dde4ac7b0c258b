#include "shared/generation/launch_diff.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

LaunchFacts working() {
  return {.label = "working.log",
          .outcome = "served",
          .options = {{"mem_fraction_static", "0.88", "auto"},
                      {"port", "30000", "default"},
                      {"tp_size", "8", "flag"},
                      {"trust_remote_code", "True", "flag"}},
          .environment = {{"driver", "570.1", ""}, {"NCCL_P2P_LEVEL", "SYS", ""}},
          .figures = {{"kv", 10.43 * kGiB, "bytes"}, {"weights", 72.29 * kGiB, "bytes"}}};
}

LaunchFacts failing() {
  LaunchFacts facts = working();
  facts.label = "failing.log";
  facts.outcome = "not enough memory";
  facts.options = {{"tp_size", "8", "flag"},
                   {"port", "30001", "flag"},
                   {"mem_fraction_static", "0.55", "flag"},
                   {"disable_radix_cache", "True", "flag"}};
  facts.environment = {{"driver", "575.2", ""}};
  facts.figures = {{"weights", 72.29 * kGiB, "bytes"}, {"kv", -20.59 * kGiB, "bytes"}};
  return facts;
}

TEST(LaunchDiff, PutsTheMemoryFractionFirstAndFiguresLast) {
  const std::vector<Difference> found = compare_launches(working(), failing());
  ASSERT_EQ(found.size(), 7U);
  EXPECT_EQ(found.front().name, "mem_fraction_static");
  EXPECT_EQ(found.front().before, "0.88");
  EXPECT_EQ(found.front().before_source, "auto");
  EXPECT_EQ(found.front().after_source, "flag");
  EXPECT_EQ(found.back().kind, DifferenceKind::figure);
  EXPECT_EQ(found.back().before, "10.43 GiB");
  EXPECT_EQ(found.back().after, "-20.59 GiB");
  // What only names things is the least suspicious of the settings.
  EXPECT_EQ(found[5].name, "port");
}

TEST(LaunchDiff, AnotherPathOfTheSameFileIsNoOtherModel) {
  LaunchFacts before = working();
  LaunchFacts after = working();
  before.options.push_back({"model", "a.gguf", "flag"});
  after.options.push_back({"model", "/m/a.gguf", "flag"});
  EXPECT_EQ(compare_launches(before, after).front().why, "another model: weights and KV differ");
  for (LaunchFacts* facts : {&before, &after})
    facts->environment.push_back({"model", "c0ffee", ""});
  const std::vector<Difference> same = compare_launches(before, after);
  ASSERT_EQ(same.size(), 1U);
  EXPECT_EQ(same.front().why, "the same weights under another name");
  EXPECT_EQ(same.front().suspicion, 0);
}

TEST(LaunchDiff, WhatOneSideLacksIsADifference) {
  const std::vector<Difference> found = compare_launches(working(), failing());
  const auto of = [&](const std::string& name) {
    return *std::ranges::find(found, name, &Difference::name);
  };
  EXPECT_FALSE(of("disable_radix_cache").before.has_value());
  EXPECT_EQ(of("disable_radix_cache").after, "True");
  EXPECT_FALSE(of("trust_remote_code").after.has_value());
  EXPECT_FALSE(of("NCCL_P2P_LEVEL").after.has_value());
}

TEST(LaunchDiff, AJudgeDecidesOverTheOrderAndSaysWhy) {
  const auto judge = [](const Difference& difference) -> std::optional<Reason> {
    if (difference.name == "driver") return Reason{"it decides", 1.0};
    if (difference.name == "mem_fraction_static") return Reason{"no effect", 0.0};
    return std::nullopt;
  };
  const std::vector<Difference> found = compare_launches(working(), failing(), judge);
  EXPECT_EQ(found.front().name, "driver");
  EXPECT_EQ(found.front().why, "it decides");
  EXPECT_EQ(found[5].name, "mem_fraction_static");
}

TEST(LaunchDiff, EqualLaunchesDifferInNothing) {
  const LaunchFacts facts = working();
  EXPECT_TRUE(compare_launches(facts, facts).empty());
  EXPECT_NE(launch_diff_text(facts, facts, {}).find("nothing differs"), std::string::npos);
}

TEST(LaunchDiff, OurOptionsAndTheirAliasesAreEquallySuspicious) {
  EXPECT_EQ(usual_suspicion(DifferenceKind::option, "max-model-len"),
            usual_suspicion(DifferenceKind::option, "context-length"));
  EXPECT_EQ(usual_suspicion(DifferenceKind::option, "tp_size"),
            usual_suspicion(DifferenceKind::option, "tp"));
  EXPECT_LT(usual_suspicion(DifferenceKind::option, "log-level"),
            usual_suspicion(DifferenceKind::option, "device-memory"));
  EXPECT_LT(usual_suspicion(DifferenceKind::environment, "HOME"),
            usual_suspicion(DifferenceKind::environment, "NCCL_DEBUG"));
}

TEST(LaunchDiff, TextHasALineADifferenceWithItsReasonBehind) {
  const auto judge = [](const Difference& difference) -> std::optional<Reason> {
    if (difference.name != "mem_fraction_static") return std::nullopt;
    return Reason{"KV 10.43 GiB -> -20.59 GiB", 1.0};
  };
  const std::vector<Difference> found = compare_launches(working(), failing(), judge);
  const std::string text = launch_diff_text(working(), failing(), found);
  EXPECT_NE(text.find("  mem_fraction_static 0.88 (auto) -> 0.55 (flag): "
                      "KV 10.43 GiB -> -20.59 GiB\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("trust_remote_code True (flag) -> (none)"), std::string::npos) << text;
  const Json json = launch_diff_json(working(), failing(), found);
  EXPECT_EQ(json.find("differences")->as_array().size(), found.size());
  EXPECT_TRUE(json.find("differences")->as_array()[0].find("before")->is_string());
}

TEST(LaunchDiff, ADefaultThatTheOtherSideDoesNotNameIsNoDifference) {
  LaunchFacts after = working();
  std::erase_if(after.options, [](const Setting& setting) { return setting.name == "port"; });
  EXPECT_TRUE(compare_launches(working(), after).empty());
  EXPECT_TRUE(compare_launches(after, working()).empty());
}

TEST(LaunchDiff, SharesOfDifferentTotalsAreOneDifference) {
  LaunchFacts sglang = working();
  LaunchFacts vllm = working();
  vllm.options[0] = {"gpu-memory-utilization", "0.92", "default"};
  for (const bool is_first : {true, false}) {
    const std::vector<Difference> found =
        is_first ? compare_launches(sglang, vllm) : compare_launches(vllm, sglang);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].name, is_first ? "mem_fraction_static -> gpu-memory-utilization"
                                      : "gpu-memory-utilization -> mem_fraction_static");
    EXPECT_EQ(is_first ? found[0].before : found[0].after, "0.88 of what is free before weights");
    EXPECT_EQ(is_first ? found[0].after : found[0].before, "0.92 of the whole device");
    EXPECT_GE(found[0].suspicion, 0.8);
  }
  // Where one launch has both, each stands for itself.
  vllm.options.push_back({"mem_fraction_static", "0.5", "flag"});
  const std::vector<Difference> both = compare_launches(sglang, vllm);
  ASSERT_EQ(both.size(), 1U);
  EXPECT_EQ(both[0].name, "mem_fraction_static");
}

TEST(LaunchDiff, WhatPythonCallsNoneIsNotSet) {
  LaunchFacts before = working();
  LaunchFacts after = working();
  before.options.push_back({"context-length", "131072", "flag"});
  after.options.push_back({"context-length", "None", "default"});
  const std::string text = launch_diff_text(before, after, compare_launches(before, after));
  EXPECT_NE(text.find("context-length 131072 (flag) -> (not set) (default)"), std::string::npos)
      << text;
}

TEST(LaunchDiff, WhatIsOfNoWeightSharesALineAndLongReasonsStandBelow) {
  LaunchFacts after = working();
  after.options[1] = {"port", "9000", "default"};
  after.options[2].value = "4";
  const auto judge = [](const Difference& difference) -> std::optional<Reason> {
    if (difference.name != "tp_size") return std::nullopt;
    return Reason{std::string(90, 'x'), 0.9};
  };
  const std::string text =
      launch_diff_text(working(), after, compare_launches(working(), after, judge));
  EXPECT_NE(text.find("  tp_size 8 (flag) -> 4 (flag):\n      xxx"), std::string::npos) << text;
  EXPECT_NE(text.find("  and, of no weight: port\n"), std::string::npos) << text;
}

TEST(LaunchDiff, WithoutAJudgeTheUsualReasonIsNamed) {
  const std::vector<Difference> found = compare_launches(working(), failing());
  EXPECT_EQ(found.front().why, "decides how much is left for KV");
}

TEST(LaunchDiff, ARowThatOneLedgerLacksIsNothingThere) {
  LaunchFacts before{.label = "a", .outcome = "", .options = {}, .environment = {}, .figures = {}};
  before.figures = {{"budget of rank 0", 4.0 * kGiB, "bytes"},
                    {"ep-buffer of rank 0", 3.0 * kGiB, "bytes"}};
  LaunchFacts after = before;
  after.figures[1] = {"process of rank 0", 1.0 * kGiB, "bytes"};
  after.figures.push_back({"best speed", 2, "tokens/s"});
  const std::vector<Difference> found = compare_launches(before, after);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "process of rank 0");
  EXPECT_EQ(found[0].before, "0 B");
  EXPECT_EQ(found[1].after, "0 B");
  EXPECT_NE(launch_diff_text(before, after, found).find("  no option differs"), std::string::npos);
  before.figures.erase(before.figures.begin());
  EXPECT_TRUE(compare_launches(before, after).empty()) << "a log has no ledger";
}

TEST(LaunchDiff, FiguresReadAsPeopleWriteThem) {
  EXPECT_EQ(figure_text(159'000, "tokens"), "159,000 tokens");
  EXPECT_EQ(figure_text(-1'234'567, ""), "-1,234,567");
  EXPECT_EQ(figure_text(38, "tokens/s"), "38.00 tokens/s");
}

}  // namespace
}  // namespace plimsoll
