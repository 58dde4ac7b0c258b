#include "shared/memory/rank_ledger.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "shared/memory/plan_problem.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_golden.h"

namespace plimsoll {
namespace {

class RankLedger : public testing::Test {
 protected:
  PlanProblem problem_of(std::vector<std::string> flags) {
    flags.push_back("--tp=2");
    const OptionSet options = test_options(std::move(flags));
    Result<PlanProblem> problem = make_problem(machine_, model_, options.values, nullptr);
    EXPECT_TRUE(problem) << problem.error().message;
    return std::move(*problem);
  }
  static Machine two_gpus() {
    Machine machine = test_machine(64 * kGiB);
    Device device;
    device.name = "GPU";
    device.memory_total = device.memory_free = 80 * kGiB;
    device.compute_major = 9;
    machine.devices = {device, device};
    return machine;
  }
  Machine machine_ = two_gpus();
  ModelSpec model_ = *golden_model("llama-8b");
};

TEST_F(RankLedger, RowsAreTheBytesInOrderAndLeaveOutWhatIsNothing) {
  const PlanProblem problem = problem_of({"--assume=weights=8GiB"});
  const FitInputs& in = problem.fit;
  const StepShape step = step_shape(in, 8192, 16);
  Bytes sum = 0;
  for (const PlanRow& row : ledger_rows(in, in.ranks[0], step)) {
    EXPECT_GT(row.bytes, 0) << term_name(row.term);
    sum += row.bytes;
  }
  EXPECT_EQ(sum, ledger_bytes(in, in.ranks[0], step).sum());
}

TEST_F(RankLedger, AnAssumedFigureReplacesItsFormulaAndSaysSo) {
  const PlanProblem problem = problem_of({"--assume=weights=8GiB,graphs=3GiB"});
  const FitInputs& in = problem.fit;
  for (const PlanRow& row : ledger_rows(in, in.ranks[0], step_shape(in, 8192, 16))) {
    const bool is_assumed = row.term == Term::weights || row.term == Term::graphs;
    EXPECT_EQ(row.formula == "by --assume", is_assumed) << term_name(row.term);
    if (is_assumed) {
      EXPECT_EQ(row.trust, Trust::assumed);
    }
  }
}

TEST_F(RankLedger, WhatWasLearnedReplacesTheEstimateButNotWhatIsAssumed) {
  machine_.learned = {{"graphs", 2 * kGiB, "generation 7"}, {"weights", kGiB, "generation 7"}};
  const PlanProblem problem = problem_of({"--assume=weights=8GiB"});
  const FitInputs& in = problem.fit;
  const TermBytes bytes = ledger_bytes(in, in.ranks[0], step_shape(in, 8192, 16));
  EXPECT_EQ(bytes[Term::graphs], 2 * kGiB);
  EXPECT_EQ(bytes[Term::weights], 8 * kGiB);
  const auto rows = ledger_rows(in, in.ranks[0], step_shape(in, 8192, 16));
  const auto graphs = std::ranges::find(rows, Term::graphs, &PlanRow::term);
  ASSERT_NE(graphs, rows.end());
  EXPECT_EQ(graphs->trust, Trust::learned);
  EXPECT_NE(graphs->formula.find("generation 7"), std::string::npos);
}

TEST_F(RankLedger, StaticAndStartBytesAreWhatServersMeanByThem) {
  TermBytes bytes;
  bytes[Term::weights] = 1;
  bytes[Term::draft] = 2;
  bytes[Term::vision] = 4;
  bytes[Term::absorbed] = 8;
  bytes[Term::context] = 16;
  bytes[Term::collective] = 32;
  bytes[Term::graphs] = 64;
  EXPECT_EQ(static_bytes(bytes), 15);
  EXPECT_EQ(start_bytes(bytes), 48);
}

}  // namespace
}  // namespace plimsoll
