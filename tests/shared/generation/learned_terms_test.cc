#include "shared/generation/learned_terms.h"

#include <gtest/gtest.h>

#include "shared/memory/memory_plan.h"
#include "shared/options/option_set.h"

namespace plimsoll {
namespace {

const std::vector<Setting> kHere = {{"driver", "570.1", ""}, {"model", "abc", ""}};

OptionSet options_of(std::int64_t tp) {
  OptionSet set;
  set.values.tp = tp;
  set.values.devices = "simulated:94GiB";
  return set;
}

Json plan_of(const char* devices, std::int64_t graph_batch) {
  MemoryPlan plan;
  plan.devices = devices;
  plan.decisions.cuda_graph_max_bs = graph_batch;
  return memory_plan_to_json(plan);
}

Json rank_of(std::vector<std::pair<std::string, Bytes>> terms) {
  Json bytes = Json::object();
  for (const auto& [term, size] : terms) bytes.set(term, size);
  return Json::object({{"replica", 0}, {"rank", 0}, {"bytes", std::move(bytes)}});
}

GenerationRecord record_of(std::int64_t number, const Json& measured,
                           const char* devices = "simulated") {
  GenerationRecord record;
  record.number = number;
  record.options = option_set_to_json(options_of(8));
  record.plan = plan_of(devices, 256);
  record.measured = measured;
  record.environment = kHere;
  return record;
}

std::vector<LearnedTerm> learned(std::vector<GenerationRecord> records) {
  const OptionSet options = options_of(8);
  return learned_terms({.records = std::move(records), .damaged = {}, .last_number = 9},
                       {kHere, options});
}

Bytes bytes_of(const std::vector<LearnedTerm>& terms, std::string_view name) {
  for (const LearnedTerm& term : terms) {
    if (term.term == name) return term.bytes;
  }
  return -1;
}

TEST(LearnedTerms, AreTheLargestOfAllRanksInWholeMiB) {
  const Json measured = Json::array({rank_of({{"context", 5 * kMiB}, {"weights", kGiB}}),
                                     rank_of({{"context", 5 * kMiB + 1}, {"graphs", kGiB}})});
  const auto terms = learned({record_of(3, measured)});
  ASSERT_EQ(terms.size(), 2U) << "weights have a formula";
  EXPECT_EQ(bytes_of(terms, "context"), 6 * kMiB);
  EXPECT_EQ(terms[0].from, "generation 3");
  EXPECT_FALSE(terms[0].graph_batch);
  EXPECT_EQ(terms[1].graph_batch, 256) << "other batches capture other graphs";
}

TEST(LearnedTerms, WhatHasNoRowIsTheProcess) {
  const auto terms =
      learned({record_of(3, Json::array({rank_of({{"lazy buffers", 2 * kMiB}, {"leak", kMiB}})}))});
  EXPECT_EQ(bytes_of(terms, "process"), 3 * kMiB);
}

TEST(LearnedTerms, OnCpusOnlyTheProcessIs) {
  const Json measured = Json::array({rank_of({{"process", 9 * kMiB}, {"collective", kMiB}})});
  const auto terms = learned({record_of(3, measured, "cpu")});
  ASSERT_EQ(terms.size(), 1U);
  EXPECT_EQ(bytes_of(terms, "process"), 9 * kMiB);
}

TEST(LearnedTerms, OnCpusTheMostThatAnyLaunchHasSeenOfAProcessCounts) {
  const auto seen = [](std::int64_t number, Bytes bytes) {
    return record_of(number, Json::array({rank_of({{"process", bytes}})}), "cpu");
  };
  const auto terms = learned({seen(3, 4 * kMiB), seen(4, 6 * kMiB), seen(5, 2 * kMiB)});
  ASSERT_EQ(terms.size(), 1U);
  EXPECT_EQ(terms[0].bytes, 6 * kMiB);
  EXPECT_EQ(terms[0].from, "generation 4");
  // A whole MiB would be a hundredth of a small model.
  EXPECT_EQ(bytes_of(learned({seen(3, 4 * kMiB + 1)}), "process"), 4 * kMiB + 256 * kKiB);
}

TEST(LearnedTerms, ComeFromTheNewestLaunchThatMeasuredAnything) {
  const auto terms = learned({record_of(3, Json::array({rank_of({{"context", kMiB}})})),
                              record_of(4, Json::array({rank_of({{"context", 2 * kMiB}})})),
                              record_of(5, Json::array())});
  EXPECT_EQ(bytes_of(terms, "context"), 2 * kMiB);
}

TEST(LearnedTerms, AnotherMachineModelOrLayoutTeachesNothing) {
  const Json measured = Json::array({rank_of({{"context", kMiB}})});
  GenerationRecord other_driver = record_of(3, measured);
  other_driver.environment[0].value = "571.0";
  GenerationRecord one_more = record_of(4, measured);
  one_more.environment.push_back({"NCCL_ALGO", "Ring", "environment"});
  GenerationRecord other_layout = record_of(5, measured);
  other_layout.options = option_set_to_json(options_of(4));
  GenerationRecord no_plan = record_of(6, measured);
  no_plan.plan = Json();
  EXPECT_TRUE(learned({other_driver, one_more, other_layout, no_plan}).empty());
}

TEST(LearnedTerms, WhatADescriptionSaysGoesBefore) {
  Machine machine;
  machine.learned = {{.term = "context", .bytes = 1, .from = "the description"}};
  add_learned({{.term = "context", .bytes = 2, .from = "generation 3"},
               {.term = "graphs", .bytes = 3, .from = "generation 3"}},
              machine);
  ASSERT_EQ(machine.learned.size(), 2U);
  EXPECT_EQ(machine.learned[0].bytes, 1);
}

TEST(LearnedTerms, AFolderThatIsAbsentTeachesNothing) {
  const OptionSet options;
  EXPECT_TRUE(read_learned_terms("/nowhere/at/all", {kHere, options}).empty());
}

TEST(LearnedTerms, ALayoutThatWasLeftToUsIsWhatItsPlanSays) {
  GenerationRecord record = record_of(3, Json::array({rank_of({{"context", 5 * kMiB}})}));
  OptionSet open = options_of(0);
  open.values.dp = 0;
  record.options = option_set_to_json(open);
  record.plan.set("tp", 8);
  EXPECT_EQ(bytes_of(learned({record}), "context"), 5 * kMiB);
  record.plan.set("tp", 4);
  EXPECT_EQ(bytes_of(learned({record}), "context"), -1);
}

Json with_table(const char* hash) {
  Json rank = rank_of({{"context", kMiB}});
  rank.set("collectives", Json::object({{"hash", hash}}));
  return Json::array({rank});
}

TEST(LearnedTerms, TheNewestComparableTableOfCollectivesIsKept) {
  GenerationRecord elsewhere = record_of(5, with_table("elsewhere"));
  elsewhere.environment[0].value = "571";
  GenerationRecord other = record_of(6, with_table("other"));
  OptionSet by_name = options_of(8);
  by_name.values.collective = "nccl";
  other.options = option_set_to_json(by_name);
  const OptionSet options = options_of(8);
  const auto kept = [&](std::vector<GenerationRecord> records) {
    return learned_collectives({.records = std::move(records), .damaged = {}, .last_number = 9},
                               {kHere, options});
  };
  const Json table = kept({record_of(2, with_table("old")), record_of(3, with_table("new")),
                           record_of(4, Json::array({rank_of({})})), elsewhere, other});
  EXPECT_EQ(table.find("hash")->as_string(), "new");
  EXPECT_TRUE(kept({elsewhere}).is_null());
  EXPECT_TRUE(kept({}).is_null());
}

}  // namespace
}  // namespace plimsoll
