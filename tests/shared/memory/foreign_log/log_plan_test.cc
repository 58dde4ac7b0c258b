#include "shared/memory/foreign_log/log_plan.h"

#include <map>

#include <gtest/gtest.h>

#include "shared/memory/foreign_log/log_file.h"
#include "tests/support/plan_cases.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

ForeignLog log_of(const std::string& name) {
  const Result<ForeignLog> log = read_foreign_log(golden_path("logs/" + name));
  EXPECT_TRUE(log) << log.error().message;
  return log ? *log : ForeignLog{};
}

std::map<std::string, std::string> taken(const std::string& name) {
  std::map<std::string, std::string> options;
  for (const LogOption& option : options_of_log(log_of(name))) options[option.name] = option.value;
  return options;
}

TEST(LogPlan, TakesLayoutFractionAndSizesOfSglang) {
  const auto options = taken("sglang-failing.log");
  EXPECT_EQ(options.at("tp"), "8");
  EXPECT_EQ(options.at("mem-fraction-static"), "0.55");
  EXPECT_EQ(options.at("cuda-graph-max-bs"), "128");
  EXPECT_EQ(options.at("devices"), "simulated:96GiB");
  const std::string& assumed = options.at("assume");
  EXPECT_NE(assumed.find("free=100931731456B"), std::string::npos) << assumed;  // 94 GiB
  EXPECT_NE(assumed.find("weights="), std::string::npos) << assumed;
  EXPECT_FALSE(options.contains("kv-cache-dtype")) << "auto there is auto here";
}

TEST(LogPlan, TakesUtilizationAndTheDevicesTotalOfVllm) {
  const auto options = taken("vllm-0.29-served.log");
  EXPECT_TRUE(options.contains("gpu-memory-utilization"));
  EXPECT_FALSE(options.contains("mem-fraction-static"));
}

TEST(LogPlan, WhatIsGivenGoesBeforeTheLog) {
  const ForeignLog log = log_of("sglang-failing.log");
  const OptionSet set = with_log_options(test_options({"--mem-fraction-static=0.8"}), log, "a.log");
  EXPECT_EQ(set.values.mem_fraction_static, 800'000);
  EXPECT_EQ(set.origin("mem-fraction-static").source, Source::flag);
  EXPECT_EQ(set.values.tp, 8);
  EXPECT_EQ(set.origin("tp").place, "a.log");
  const OptionSet described = with_log_options(test_options({"--machine=m.json"}), log, "a.log");
  EXPECT_EQ(described.values.devices, "simulated") << "the devices of the description";
}

TEST(LogPlan, EveryLogThatCanBeReadGivesOptionsThatAreTaken) {
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("logs"))) {
    if (entry.path().extension() != ".log") continue;
    const Result<ForeignLog> log = read_foreign_log(entry.path());
    if (!log) continue;
    const OptionSet set = with_log_options(OptionSet{}, *log, "log");
    for (const LogOption& option : options_of_log(*log)) {
      EXPECT_EQ(set.origin(option.name).source, Source::file)
          << entry.path() << ": " << option.name << " = " << option.value;
    }
  }
}

}  // namespace
}  // namespace plimsoll
