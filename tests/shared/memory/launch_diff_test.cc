#include "shared/memory/launch_diff.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

Bytes gib(double value) { return static_cast<Bytes>(value * static_cast<double>(kGiB)); }

LaunchRecord story(const std::string& fraction, const std::string& provenance, LaunchEnd end) {
  LaunchRecord launch;
  launch.label = fraction;
  launch.end = end;
  launch.options = {{"cuda-graph-max-bs", "512", "auto, from that log"},
                    {"disable-custom-all-reduce", "True", "flag"},
                    {"mem-fraction-static", fraction, provenance},
                    {"port", "8000", "default"},
                    {"tp", "8", "flag"}};
  launch.memory.base = gib(94);
  launch.memory.weights = gib(72.29);
  launch.memory.left = gib(21.71);
  return launch;
}

LaunchRecord working() { return story("0.88", "auto, from that log", LaunchEnd::served); }
LaunchRecord failing() { return story("0.55", "flag", LaunchEnd::no_kv); }

void set(LaunchRecord& launch, const std::string& name, const std::string& value) {
  for (LaunchValue& option : launch.options) {
    if (option.name == name) option.value = value;
  }
}

TEST(LaunchDiff, TheFractionComesFirstAndSaysWhatItDoesToKv) {
  LaunchRecord after = failing();
  set(after, "port", "30000");
  set(after, "cuda-graph-max-bs", "128");
  set(after, "disable-custom-all-reduce", "False");
  const LaunchDiff diff = diff_launches(working(), after);
  ASSERT_EQ(diff.changes.size(), 4U);
  EXPECT_EQ(change_line(diff.changes[0]),
            "mem-fraction-static 0.88 (auto, from that log) -> 0.55 (flag): "
            "KV 10.43 GiB -> -20.59 GiB");
  EXPECT_EQ(diff.changes[0].suspicion, 100);
  EXPECT_EQ(diff.changes[1].name, "cuda-graph-max-bs");
  EXPECT_EQ(diff.changes[2].name, "disable-custom-all-reduce");
  EXPECT_EQ(diff.changes[3].name, "port");
  EXPECT_LT(diff.changes[3].suspicion, kSuspicionMin);
}

TEST(LaunchDiff, LaunchesThatAreTheSameDoNotDiffer) {
  const LaunchDiff diff = diff_launches(working(), working());
  EXPECT_TRUE(diff.changes.empty());
  EXPECT_NE(launch_diff_report(diff, working(), working()).find("nothing differs"),
            std::string::npos);
}

TEST(LaunchDiff, ValuesThatMeanTheSameAreNoChange) {
  LaunchRecord after = working();
  set(after, "tp", "8.0");
  set(after, "disable-custom-all-reduce", "true");
  EXPECT_TRUE(diff_launches(working(), after).changes.empty());
}

TEST(LaunchDiff, TheEffectOnKvIsOfTheOneOptionAlone) {
  LaunchRecord after = failing();
  after.memory.left = gib(1);  // other weights: charged to the weights, not to the fraction
  after.memory.weights = gib(93);
  const LaunchDiff diff = diff_launches(working(), after);
  EXPECT_EQ(diff.changes[0].name, "mem-fraction-static");
  EXPECT_NEAR(static_cast<double>(*diff.changes[0].kv_after) / static_cast<double>(kGiB), -20.59,
              1e-6);
  EXPECT_EQ(diff.changes[1].name, "weights");
}

TEST(LaunchDiff, AbsentCountsOnlyWhereItWasGiven) {
  LaunchRecord after = working();
  std::erase_if(after.options, [](const LaunchValue& v) { return v.name == "port"; });
  EXPECT_TRUE(diff_launches(working(), after).changes.empty());
  std::erase_if(after.options, [](const LaunchValue& v) { return v.name == "tp"; });
  const LaunchDiff diff = diff_launches(working(), after);
  ASSERT_EQ(diff.changes.size(), 1U);
  EXPECT_EQ(change_line(diff.changes[0]).substr(0, 25), "tp 8 (flag) -> (absent): ");
  EXPECT_EQ(diff_launches(after, working()).changes[0].after.value, "8");
}

TEST(LaunchDiff, LessFreeMemoryBeforeLoadingIsASuspectThatNobodySet) {
  LaunchRecord after = working();
  after.memory.base = gib(22);
  const LaunchDiff diff = diff_launches(working(), after);
  ASSERT_EQ(diff.changes.size(), 1U);
  EXPECT_EQ(diff.changes[0].kind, ChangeKind::figure);
  EXPECT_EQ(change_line(diff.changes[0]),
            "free before weights 94.00 GiB -> 22.00 GiB: 72.00 GiB less: something else holds it, "
            "or it is another device");
}

TEST(LaunchDiff, WhereGraphsRanOutMoreKvIsTheSuspect) {
  LaunchRecord before = story("0.88", "flag", LaunchEnd::served);
  before.memory.graphs = gib(3.05);
  LaunchRecord after = story("0.97", "flag", LaunchEnd::no_graphs);
  set(after, "cuda-graph-max-bs", "1024");
  set(after, "tp", "4");
  const LaunchDiff diff = diff_launches(before, after);
  EXPECT_EQ(diff.changes[0].name, "mem-fraction-static");
  EXPECT_EQ(diff.changes[1].name, "cuda-graph-max-bs");
  EXPECT_NE(diff.changes[1].why.find("3.05 GiB with 512"), std::string::npos);
}

TEST(LaunchDiff, AnotherSizingRuleMayBeGiven) {
  LaunchRecord before = working();
  LaunchRecord after = working();
  set(after, "tp", "1");
  const LaunchDiff diff =
      diff_launches(before, after, [](const LaunchRecord&, const LaunchValue& value) {
        return value.name == "tp" ? std::optional(value.value == "8" ? gib(4) : gib(-1))
                                  : std::nullopt;
      });
  EXPECT_EQ(diff.changes[0].suspicion, 100);
  EXPECT_EQ(diff.changes[0].why, "KV 4.00 GiB -> -1.00 GiB");
}

TEST(LaunchDiff, SurroundingsAreComparedWhereBothSidesHaveThem) {
  LaunchRecord before = working();
  LaunchRecord after = working();
  before.surroundings = {{"driver", "570.1", ""}, {"NCCL_P2P_LEVEL", "SYS", ""}};
  EXPECT_TRUE(diff_launches(before, after).changes.empty());
  after.surroundings = {{"driver", "580.2", ""}};
  const LaunchDiff diff = diff_launches(before, after);
  ASSERT_EQ(diff.changes.size(), 2U);
  EXPECT_EQ(diff.changes[0].kind, ChangeKind::surrounding);
}

TEST(LaunchDiff, TheReportFitsOnAScreenAndCountsWhatCannotMatter) {
  LaunchRecord after = failing();
  set(after, "port", "30000");
  const LaunchDiff diff = diff_launches(working(), after);
  const std::string text = launch_diff_report(diff, working(), after);
  EXPECT_EQ(text,
            "0.88 (served) -> 0.55 (no memory for KV)\n\n"
            "  1. mem-fraction-static 0.88 (auto, from that log) -> 0.55 (flag): KV 10.43 GiB -> "
            "-20.59 GiB\n"
            "     also differ, and cannot matter here: port\n\n"
            "  free before weights     94.00 GiB     94.00 GiB\n"
            "  weights                 72.29 GiB     72.29 GiB\n"
            "  free after weights      21.71 GiB     21.71 GiB\n");
}

TEST(LaunchDiff, JsonHasBytesAndSuspicion) {
  const Json json = launch_diff_to_json(diff_launches(working(), failing()), working(), failing());
  const Json& change = json.find("changes")->as_array().at(0);
  EXPECT_EQ(change.find("name")->as_string(), "mem-fraction-static");
  EXPECT_EQ(change.find("kv_bytes_after")->as_int(), gib(21.71) - gib(94.0 * 0.45));
  EXPECT_EQ(change.find("suspicion")->as_int(), 100);
  EXPECT_EQ(json.find("after")->find("end")->as_string(), "no memory for KV");
}

TEST(LaunchDiff, AFractionThatIsNoneGivesNoKv) {
  for (const char* value : {"", "auto", "1.5", "-0.1", "0.5x", "nan"}) {
    EXPECT_FALSE(kv_with_fraction(working(), {"mem-fraction-static", value, ""})) << value;
  }
  EXPECT_FALSE(kv_with_fraction(working(), {"tp", "0.5", ""}));
}

}  // namespace
}  // namespace plimsoll
