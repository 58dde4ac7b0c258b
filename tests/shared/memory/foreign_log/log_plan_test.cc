#include "shared/memory/foreign_log/log_plan.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "shared/base/text.h"
#include "shared/memory/foreign_log/log_file.h"
#include "shared/memory/machine_source.h"
#include "shared/memory/memory_plan.h"
#include "shared/options/assumption.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_golden.h"
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

std::map<std::string, std::string> taken_of(const ForeignLog& log) {
  std::map<std::string, std::string> options;
  for (const LogOption& option : options_of_log(log)) options[option.name] = option.value;
  return options;
}

TEST(LogPlan, AttentionInDataParallelDividesTheRanksOfOneReplica) {
  const auto log = parse_foreign_log(
      "server_args=ServerArgs(model_path='m', tp_size=8, dp_size=8, pp_size=2, ep_size=8, "
      "enable_dp_attention=True, mem_fraction_static=0.8)\n"
      "[TP0] Load weight begin. avail mem=90.00 GB\n");
  ASSERT_TRUE(log) << log.error().message;
  const auto options = taken_of(*log);
  EXPECT_EQ(options.at("tp"), "8");
  EXPECT_FALSE(options.contains("dp"));
  const std::string notes = join(log_plan_notes(*log), "\n");
  EXPECT_NE(notes.find("attention in data parallel: dp 8 divides its 8 ranks"), std::string::npos);
  EXPECT_NE(notes.find("pipeline parallelism over 2 stages"), std::string::npos) << notes;
  EXPECT_NE(notes.find("with all layers"), std::string::npos) << notes;
  EXPECT_NE(notes.find("--ep 8"), std::string::npos) << notes;
  // vLLM's replicas are replicas.
  const auto vllm = parse_foreign_log(
      "INFO non-default args: {'model': 'm', 'tensor_parallel_size': 2, 'data_parallel_size': "
      "4}\n");
  ASSERT_TRUE(vllm);
  EXPECT_EQ(taken_of(*vllm).at("dp"), "4");
  EXPECT_TRUE(log_plan_notes(*vllm).empty());
}

TEST(LogPlan, TakesTheExactDeviceItsFreeMemoryAndKvInBytesOfVllm) {
  const auto log = parse_foreign_log(
      "INFO non-default args: {'model': 'm', 'gpu_memory_utilization': 0.9, "
      "'kv_cache_memory_bytes': 4294967296}\n"
      "ERROR [core.py:708] ValueError: Free memory on device (61.50/79.25 GiB) on startup is less "
      "than desired GPU memory utilization (0.9, 71.32 GiB). Decrease GPU memory utilization or "
      "reduce GPU memory used by other processes.\n");
  ASSERT_TRUE(log) << log.error().message;
  const auto options = taken_of(*log);
  EXPECT_EQ(options.at("devices"), "simulated:81152MiB");
  EXPECT_EQ(options.at("kv-cache-bytes"), "4294967296B");
  EXPECT_NE(options.at("assume").find("free=66035122176B"), std::string::npos)
      << options.at("assume");
  const std::string notes = join(log_plan_notes(*log), "\n");
  EXPECT_NE(notes.find("also asks that 71.33 GiB (0.9 of the device) are free"), std::string::npos)
      << notes;
}

// The older engine's account: what is outside PyTorch, and a peak that has the weights in it.
TEST(LogPlan, ReplaysVllmsAccountToItsTokens) {
  const ForeignLog log = log_of("vllm-0.6-account.log");  // 23.58 x 0.9: 2.89 GiB, 23,648 tokens
  const OptionSet set = with_log_options(test_options({}), log, "a.log");
  const Result<Machine> machine = find_machine(set.values);
  ASSERT_TRUE(machine) << machine.error().message;
  const ModelSpec model = *golden_model("llama-8b");
  OptionSet short_context = set;
  short_context.values.context_length = 4096;
  const Result<MemoryPlan> plan = plan_memory(*machine, model, short_context);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_FALSE(plan->refusal) << plan->refusal->message;
  EXPECT_NEAR(static_cast<double>(plan->kv.tokens), 23'648, 64);
  EXPECT_NEAR(static_cast<double>(plan->kv.bytes) / static_cast<double>(kGiB), 2.89, 0.01);
}

// 16.31 GiB of 39.39 were free, and 0.4 of the device was to be used by all together.
TEST(LogPlan, ReplaysThatOthersHeldTheMemory) {
  const ForeignLog log = log_of("vllm-0.6-occupied.log");
  const auto options = taken("vllm-0.6-occupied.log");
  EXPECT_NE(options.at("assume").find("process=247"), std::string::npos) << options.at("assume");
  EXPECT_NE(options.at("assume").find("workspace=0B"), std::string::npos) << options.at("assume");
  const std::vector<std::string> notes = log_plan_notes(log);
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) {
    return note ==
           "23.10 GiB that other processes held are in the row process: this engine's share "
           "counts them";
  }));
  const OptionSet set = with_log_options(test_options({}), log, "a.log");
  const Result<Machine> machine = find_machine(set.values);
  ASSERT_TRUE(machine) << machine.error().message;
  const Result<MemoryPlan> plan = plan_memory(*machine, *golden_model("llama-8b"), set);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(plan->refusal);
  EXPECT_NE(plan->refusal->message.find("binding: process, 23.08 GiB"), std::string::npos)
      << plan->refusal->message;
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

std::map<std::string, Bytes> assumed_of(const ForeignLog& log, std::vector<std::string> flags) {
  const OptionSet set = with_log_options(test_options(std::move(flags)), log, "a.log");
  std::map<std::string, Bytes> terms;
  const auto assumed = parse_assumptions(set.values.assume);
  EXPECT_TRUE(assumed);
  for (const Assumption& one : *assumed) terms[one.term] = one.bytes;
  return terms;
}

std::map<std::string, Bytes> assumed_with(const std::string& name, std::vector<std::string> flags) {
  return assumed_of(log_of(name), std::move(flags));
}

// KV in bytes: what was left of the share is nobody's.
constexpr std::string_view kKvInBytes =
    "INFO [api_server.py:1839] vLLM API server version 0.15.1\n"
    "INFO [utils.py:233] non-default args: {'model': 'm', 'max_model_len': 8192, "
    "'gpu_memory_utilization': 0.9, 'kv_cache_memory_bytes': 4294967296}\n"
    "INFO [gpu_model_runner.py:4115] Model loading took 14.99 GiB memory and 44.112 seconds\n"
    "INFO [kv_cache_utils.py:1307] GPU KV cache size: 32,768 tokens\n"
    "INFO [gpu_worker.py:420] Free memory on device (78.70/79.25 GiB) on startup. Desired GPU "
    "memory utilization is (0.9, 71.32 GiB). Actual usage is 14.99 GiB for weight, 1.20 GiB for "
    "peak activation, 0.10 GiB for non-torch memory, and 0.68 GiB for CUDAGraph memory. Replace "
    "gpu_memory_utilization config with `--kv-cache-memory=58000000000` (54.02 GiB) to fit into "
    "requested memory, or `--kv-cache-memory=66000000000` (61.47 GiB) to fully utilize gpu "
    "memory. Current kv cache memory in use is 4.00 GiB.\n"
    "INFO:     Application startup complete.\n";

TEST(LogPlan, KvInBytesIsBesideTheShareOfWhichNothingIsBuffers) {
  const auto log = parse_foreign_log(kKvInBytes);
  ASSERT_TRUE(log) << log.error().message;
  ASSERT_TRUE(log->total && log->fraction && log->kv_rule());
  const auto terms = assumed_of(*log, {});
  const double buffers = static_cast<double>(terms.at("activations") + terms.at("workspace"));
  EXPECT_NEAR(buffers / static_cast<double>(kGiB), 1.30, 0.01);
  EXPECT_NEAR(static_cast<double>(terms.at("graphs")) / static_cast<double>(kGiB), 0.68, 0.01);
  EXPECT_EQ(taken_of(*log).at("kv-cache-bytes"), "4294967296B");
}

// 65,600 tokens; three of the log's figures, of two digits each, are taken off 3.05 GiB.
TEST(LogPlan, WhatGoesFromKvsShareBeforeKvIsReplayed) {
  const ForeignLog log = log_of("sglang-0.5-multimodal.log");
  const OptionSet set = with_log_options(test_options({}), log, "a.log");
  const Result<Machine> machine = find_machine(set.values);
  ASSERT_TRUE(machine) << machine.error().message;
  OptionSet short_context = set;
  short_context.values.context_length = 4096;
  const Result<MemoryPlan> plan = plan_memory(*machine, *golden_model("llama-8b"), short_context);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_FALSE(plan->refusal) << plan->refusal->message;
  EXPECT_NEAR(static_cast<double>(plan->kv.tokens), 65'600, 0.06 * 65'600);
}

TEST(LogPlan, AnAssumptionByHandReplacesItsTermAlone) {
  const auto terms = assumed_with("sglang-working.log", {"--assume=graphs=1GiB"});
  EXPECT_EQ(terms.at("graphs"), kGiB);
  EXPECT_EQ(terms.at("free"), 94 * kGiB);
  EXPECT_TRUE(terms.contains("weights"));
  EXPECT_EQ(assumed_with("sglang-working.log", {"--assume=free=80GiB"}).at("free"), 80 * kGiB);
}

TEST(LogPlan, WhatRanksMeasuredIsNotTakenForAnotherLayout) {
  const auto halved = assumed_with("sglang-working.log", {"--tp=4"});
  EXPECT_FALSE(halved.contains("weights"));
  EXPECT_TRUE(halved.contains("free"));
  EXPECT_TRUE(assumed_with("sglang-working.log", {"--tp=8"}).contains("weights"));
  EXPECT_FALSE(assumed_with("sglang-working.log", {"--kv-cache-dtype=fp8"}).contains("kv-token"));
  EXPECT_FALSE(assumed_with("sglang-working.log", {"--machine=m.json"}).contains("free"));
  const std::string devices = "--devices=simulated:141GiB";
  EXPECT_FALSE(assumed_with("sglang-working.log", {devices}).contains("free"));
  EXPECT_FALSE(assumed_with("vllm-0.6-account.log", {devices}).contains("total"));
  EXPECT_TRUE(assumed_with("sglang-working.log", {devices}).contains("weights"));
  const ForeignLog log = log_of("sglang-working.log");
  EXPECT_EQ(log_replay_notes(test_options({"--tp=4"}), log).size(), 1U);
  EXPECT_TRUE(log_replay_notes(test_options({}), log).empty());
  const std::string notes = join(log_replay_notes(test_options({devices}), log), "\n");
  EXPECT_NE(notes.find("what was free on the log's is not taken"), std::string::npos) << notes;
}

// Gemma's layers with a window: 46,784 tokens by vLLM's account, and 2.13 requests of 131,072.
TEST(LogPlan, ARequestTakesWhatTheLogSaysThatItTakes) {
  const Bytes token = assumed_with("vllm-0.19-windows.log", {}).at("kv-token");
  EXPECT_NEAR(static_cast<double>(token), 9.61 * static_cast<double>(kGiB) / (2.13 * 131'072), 2);
}

TEST(LogPlan, AnotherRuleForKvReplacesTheLogs) {
  const OptionSet set = with_log_options(test_options({"--gpu-memory-utilization=0.9"}),
                                         log_of("sglang-working.log"), "a.log");
  EXPECT_FALSE(set.values.mem_fraction_static);
}

// vLLM's logs say how much was left, and not always why.
TEST(LogPlan, EveryVllmLogThatSaysItsKvIsReplayedToIt) {
  int replayed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("logs"))) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".log" || !name.starts_with("vllm")) continue;
    const ForeignLog log = log_of(name);
    const ForeignRank* rank = log.tightest();
    if (!log.total || !log.fraction || rank == nullptr || !rank->weights) continue;
    if (log.kv_rule().value_or(0) <= 0 || log.arg("kv-cache-bytes") != nullptr) continue;
    OptionSet set = with_log_options(test_options({}), log, "a.log");
    set.values.tp = set.values.dp = 1;
    set.values.context_length.reset();
    set.values.max_total_tokens.reset();
    const Result<Machine> machine = find_machine(set.values);
    ASSERT_TRUE(machine) << name;
    const Result<MemoryPlan> plan = plan_memory(*machine, *golden_model("llama-8b"), set);
    ASSERT_TRUE(plan) << name << plan.error().message;
    EXPECT_NEAR(static_cast<double>(plan->kv.bytes), static_cast<double>(*log.kv_rule()),
                static_cast<double>(32 * kMiB))
        << name << (plan->refusal ? plan->refusal->message : "");
    ++replayed;
  }
  EXPECT_GE(replayed, 3);
}

}  // namespace
}  // namespace plimsoll
