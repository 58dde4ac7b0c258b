#include "shared/generation/generation_record.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "shared/memory/memory_plan.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

OptionSet options_with(std::int64_t running) {
  OptionSet set;
  set.values.max_running_requests = running;
  set.origins["max-running-requests"] = {Source::flag, "--max-running-requests"};
  return set;
}

GenerationRecord full_record() {
  GenerationRecord record;
  record.number = 12;
  record.started = 1'700'000'000;
  record.ended = 1'700'000'100;
  record.outcome = Outcome::stopped;
  record.message = "because";
  record.known_good = true;
  record.cause = "reconfigure";
  record.based_on = 11;
  record.options = option_set_to_json(options_with(8));
  const auto row = [](const char* term, std::int64_t bytes) {
    return Json::object({{"term", term}, {"bytes", bytes}});
  };
  record.plan = Json::object(
      {{"decisions", Json::object({{"context_length", 4096}, {"kv_blocks", 256}})},
       {"ranks",
        Json::array({Json::object({{"budget", 3000},
                                   {"rows", Json::array({row("weights", 1000), row("weights", 24),
                                                         row("kv", 512)})}})})}});
  record.measured = Json::array({Json::object({{"weights", 1024}})});
  record.environment = {{"driver", "570.1", ""}, {"NCCL_DEBUG", "INFO", "environment"}};
  record.started_in_s = 2.5;
  record.tokens_per_second = 40;
  return record;
}

void write(const std::filesystem::path& state, const GenerationRecord& record) {
  std::filesystem::create_directories(generations_folder(state));
  std::ofstream(generation_file(state, record.number)) << dump_json(generation_to_json(record));
}

TEST(GenerationRecord, ReadsBackAsItWasWritten) {
  const GenerationRecord record = full_record();
  const Result<GenerationRecord> back = generation_from_json(generation_to_json(record));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(generation_to_json(*back), generation_to_json(record));
  EXPECT_EQ(back->environment.size(), 2U);
}

TEST(GenerationRecord, WhatIsMissingOrOfAnotherKindIsNamed) {
  Json json = generation_to_json(full_record());
  json.set("outcome", "splendid");
  Result<GenerationRecord> record = generation_from_json(json);
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code, Code::corrupt);
  EXPECT_NE(record.error().message.find("outcome"), std::string::npos);
  json = generation_to_json(full_record());
  json.set("started", "yesterday");
  record = generation_from_json(json);
  ASSERT_FALSE(record);
  EXPECT_NE(record.error().message.find("started"), std::string::npos);
  EXPECT_FALSE(generation_from_json(Json::array()));
  json = generation_to_json(full_record());
  json.set("format", 99);
  record = generation_from_json(json);
  ASSERT_FALSE(record);
  EXPECT_NE(record.error().message.find("newer"), std::string::npos);
}

TEST(GenerationRecord, AFolderIsReadInOrderWithDamagedFilesNamed) {
  const TempFolder folder;
  ASSERT_TRUE(read_generations(folder.path()));
  EXPECT_TRUE(read_generations(folder.path())->records.empty());
  GenerationRecord record = full_record();
  for (const std::int64_t number : {9, 3, 12}) {
    record.number = number;
    write(folder.path(), record);
  }
  std::ofstream(generation_file(folder.path(), 20)) << "{";
  std::ofstream(generations_folder(folder.path()) / "00000030.json.XyZ123") << "{";
  const Result<Generations> all = read_generations(folder.path());
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->records.size(), 3U);
  EXPECT_EQ(all->records[0].number, 3);
  EXPECT_EQ(all->records[2].number, 12);
  EXPECT_EQ(all->last_number, 20);
  ASSERT_EQ(all->damaged.size(), 1U);
  EXPECT_NE(all->damaged[0].find("00000020.json"), std::string::npos);
  EXPECT_NE(find_generation(*all, 9), nullptr);
  EXPECT_EQ(find_generation(*all, 10), nullptr);
}

TEST(GenerationRecord, TheLastKnownGoodSkipsWhatFailedAndWhatIsTheSame) {
  Generations all;
  const auto add = [&](std::int64_t number, bool good, std::int64_t running) {
    GenerationRecord record;
    record.number = number;
    record.known_good = good;
    OptionSet set = options_with(running);
    // Where a value came from makes no other launch.
    if (number % 2 == 0) set.origins.clear();
    record.options = option_set_to_json(set);
    all.records.push_back(std::move(record));
  };
  add(1, true, 4);
  add(2, true, 8);
  add(3, false, 9);
  add(5, true, 8);
  const GenerationRecord& last = all.records.back();
  EXPECT_EQ(last_known_good(all, 5)->number, 2);
  EXPECT_EQ(last_known_good(all, 100)->number, 5);
  EXPECT_EQ(last_known_good(all, 5, &last)->number, 1);
  EXPECT_EQ(last_known_good(all, 1), nullptr);
}

TEST(GenerationRecord, FactsHaveOptionsAsPeopleWriteThemAndTheLedgersSums) {
  const LaunchFacts facts = launch_facts(full_record());
  const auto option = std::ranges::find(facts.options, "max-running-requests", &Setting::name);
  ASSERT_NE(option, facts.options.end());
  EXPECT_EQ(option->value, "8");
  EXPECT_EQ(option->source, "flag");
  EXPECT_EQ(std::ranges::find(facts.options, "context-length", &Setting::name)->source, "auto");
  const auto weights = std::ranges::find(facts.figures, "weights of rank 0", &Figure::name);
  ASSERT_NE(weights, facts.figures.end());
  EXPECT_EQ(weights->value, 1024);
  EXPECT_EQ(std::ranges::find(facts.figures, "kv blocks", &Figure::name)->unit, "blocks");
  EXPECT_EQ(facts.outcome, "stopped: because");
}

TEST(GenerationRecord, AnOptionOfAnotherBuildIsStillShown) {
  GenerationRecord record = full_record();
  record.options.set("warp-drive", Json::object({{"value", 9}, {"source", "flag"}}));
  const LaunchFacts facts = launch_facts(record);
  EXPECT_EQ(std::ranges::find(facts.options, "warp-drive", &Setting::name)->value, "9");
}

TEST(GenerationRecord, WhatIsCommittedReadsBack) {
  const Committed committed{.generation = 4,
                            .options = option_set_to_json(options_with(3)),
                            .given = option_set_to_json({})};
  const Result<Committed> back = committed_from_json(committed_to_json(committed));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->generation, 4);
  EXPECT_EQ(back->options, committed.options);
  EXPECT_EQ(back->given, committed.given);
  EXPECT_FALSE(committed_from_json(Json::object()));
}

// The story, as it is kept: nothing was allocated, and what the fraction gave says why.
TEST(GenerationRecord, KvOfARefusedPlanIsWhatItsRuleGave) {
  const auto kv_of = [](const Options& options) {
    MemoryPlan plan;
    plan.devices = "simulated";
    RankPlan rank;
    rank.device_total = 96 * kGiB;
    rank.free_before_weights = 94 * kGiB;
    rank.rows = {{.term = Term::context, .bytes = kGiB, .formula = ""},
                 {.term = Term::weights, .bytes = 72 * kGiB, .formula = ""},
                 {.term = Term::logits, .bytes = kGiB, .formula = ""},
                 {.term = Term::kv, .bytes = 0, .formula = ""}};
    plan.ranks = {rank};
    plan.decisions.context_length = 4096;
    plan.refusal = Error{Code::does_not_fit, "the plan does not fit"};
    GenerationRecord record = full_record();
    record.plan = memory_plan_to_json(plan);
    OptionSet set;
    set.values = options;
    record.options = option_set_to_json(set);
    const LaunchFacts facts = launch_facts(record);
    EXPECT_EQ(std::ranges::find(facts.figures, "context length", &Figure::name),
              facts.figures.end())
        << "it was not decided";
    return figure_text(std::ranges::find(facts.figures, "kv of rank 0", &Figure::name)->value,
                       "bytes");
  };
  Options options;
  EXPECT_EQ(kv_of(options), "0 B") << "no option says how much";
  options.mem_fraction_static = 500'000;
  EXPECT_EQ(kv_of(options), "-25.00 GiB");
  options.mem_fraction_static.reset();
  options.gpu_memory_utilization = 500'000;
  EXPECT_EQ(kv_of(options), "-25.00 GiB");
  options.gpu_memory_utilization.reset();
  options.kv_cache_bytes = 30 * kGiB;
  EXPECT_EQ(kv_of(options), "30.00 GiB");
}

TEST(GenerationRecord, WhatIsNoFileOfItsNumberIsLeftOut) {
  const TempFolder folder;
  GenerationRecord record = full_record();
  record.number = 5;
  write(folder.path(), record);
  std::filesystem::copy_file(generation_file(folder.path(), 5), generation_file(folder.path(), 50));
  ASSERT_EQ(::mkfifo(generation_file(folder.path(), 51).c_str(), 0600), 0);
  const auto all = read_generations(folder.path());
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->records.size(), 1U);
  ASSERT_EQ(all->damaged.size(), 2U);
  EXPECT_NE(all->damaged[0].find("it is of generation 5"), std::string::npos) << all->damaged[0];
  EXPECT_NE(all->damaged[1].find("not a regular file"), std::string::npos) << all->damaged[1];
}

}  // namespace
}  // namespace plimsoll
