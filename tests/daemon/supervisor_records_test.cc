// What the supervisor keeps of generations, and what a next daemon makes of it.

#include <gtest/gtest.h>

#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

TEST(SupervisorRecords, AServingGenerationIsKnownGoodAndCommitted) {
  Harness h;
  h.handle(Begin{});
  ASSERT_EQ(h.records.size(), 1U);
  EXPECT_EQ(h.records[1].outcome, Outcome::launching);
  EXPECT_EQ(h.records[1].cause, "start");
  EXPECT_FALSE(h.committed);
  h.bring_up_router();
  h.now += seconds(3);
  h.bring_up(0);
  h.answer_probe();
  EXPECT_EQ(h.records[1].outcome, Outcome::serving);
  EXPECT_TRUE(h.records[1].known_good);
  EXPECT_EQ(h.records[1].started, 1'700'000'000);
  EXPECT_EQ(h.records[1].started_in_s, 3.0);
  EXPECT_EQ(h.records[1].measured.as_array().size(), 2U);
  EXPECT_TRUE(h.records[1].options.find("tp"));
  ASSERT_TRUE(h.committed);
  EXPECT_EQ(h.committed->generation, 1);
}

TEST(SupervisorRecords, AStopEndsTheRecordAndUncommitsIt) {
  Harness h;
  h.serve();
  h.now += seconds(60);
  h.command("stop");
  h.let_leave();
  EXPECT_EQ(h.records[1].outcome, Outcome::stopped);
  EXPECT_TRUE(h.records[1].known_good);
  EXPECT_EQ(h.records[1].ended - h.records[1].started, 60);
  EXPECT_FALSE(h.committed);
}

TEST(SupervisorRecords, ASignalEndsTheRecordAndKeepsItCommitted) {
  Harness h;
  h.serve();
  h.handle(StopSignal{});
  h.let_leave();
  EXPECT_TRUE(h.exit_code);
  EXPECT_EQ(h.records[1].outcome, Outcome::stopped);
  EXPECT_TRUE(h.committed);
}

TEST(SupervisorRecords, ARefusedPlanHasARecordWithItsLedger) {
  Harness h;
  h.refusal = does_not_fit("KV does not fit");
  h.handle(Begin{});
  EXPECT_EQ(h.exit_code, 3);
  ASSERT_EQ(h.records.size(), 1U);
  EXPECT_EQ(h.records[1].outcome, Outcome::refused);
  EXPECT_EQ(h.records[1].message, "KV does not fit");
  EXPECT_TRUE(h.records[1].plan.is_object());
  EXPECT_FALSE(h.records[1].known_good);
}

TEST(SupervisorRecords, ARefusedReconfigurationLeavesTheRunningOneItsNumber) {
  Harness h;
  h.serve();
  h.plan_error = not_found("no such model");
  h.reconfigure("tp", "1");
  EXPECT_EQ(h.supervisor().generation(), 1);
  ASSERT_EQ(h.records.size(), 2U);
  EXPECT_EQ(h.records[2].outcome, Outcome::refused);
  EXPECT_EQ(h.records[2].based_on, 1);
  EXPECT_EQ(h.records[2].cause, "reconfigure");
  EXPECT_EQ(h.committed->generation, 1);
}

TEST(SupervisorRecords, AFailedReconfigurationIsRecordedAndThePreviousOneServesOn) {
  Harness h;
  h.serve();
  h.reconfigure("tp", "1");
  h.let_leave();
  EXPECT_EQ(h.records[1].outcome, Outcome::stopped);
  EXPECT_EQ(h.records[2].outcome, Outcome::launching);
  h.die(Harness::worker(0, 0), SIGSEGV);
  h.pass_for(seconds(2));
  h.let_leave();
  EXPECT_EQ(h.records[2].outcome, Outcome::failed);
  EXPECT_NE(h.records[2].message.find("SIGSEGV"), std::string::npos) << h.records[2].message;
  EXPECT_EQ(h.records[1].outcome, Outcome::launching);
  h.bring_up(0);
  h.answer_probe();
  EXPECT_EQ(h.records[1].outcome, Outcome::serving);
  EXPECT_EQ(h.records.size(), 2U);
  EXPECT_EQ(h.committed->generation, 1);
}

TEST(SupervisorRecords, ALiveChangeIsAGenerationOfItsOwn) {
  Harness h;
  h.serve();
  h.reconfigure("max-queued-requests", "7");
  EXPECT_EQ(h.records[1].outcome, Outcome::stopped);
  EXPECT_EQ(h.records[2].outcome, Outcome::serving);
  EXPECT_TRUE(h.records[2].known_good);
  EXPECT_EQ(h.records[2].based_on, 1);
  EXPECT_EQ(h.committed->generation, 2);
  EXPECT_EQ(h.committed->options.find("max-queued-requests")->find("value")->as_int(), 7);
}

TEST(SupervisorRecords, TheBestSecondIsKept) {
  Harness h;
  h.serve();
  // 400 tokens a second for a minute, then 100.
  std::int64_t tokens = 0;
  for (std::int64_t i = 1; i <= 70; ++i) {
    h.pass_for(seconds(1));
    tokens += i <= 65 ? 400 : 100;
    h.pong(0, 2, Pong{.sequence = i, .steps = i, .generated_tokens = tokens});
  }
  ASSERT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_NEAR(h.records[1].tokens_per_second, 400, 1) << "a daemon may be killed at any time";
  h.command("stop");
  h.let_leave();
  EXPECT_NEAR(h.records[1].tokens_per_second, 400, 1);
}

// ---- the next daemon ----

Committed left_by(Harness& first) { return *first.committed; }

TEST(SupervisorRecords, ANextDaemonThatIsGivenTheSameRunsWhatWasCommitted) {
  Harness first;
  first.serve();
  first.reconfigure("max-queued-requests", "7");
  Harness next(2, 1, "/models/small.gguf", left_by(first), 2);
  next.handle(Begin{});
  EXPECT_EQ(next.supervisor().options().values.max_queued_requests, 7);
  EXPECT_EQ(next.supervisor().generation(), 3);
  EXPECT_EQ(next.records[3].cause, "start, as generation 2");
  EXPECT_EQ(next.records[3].based_on, 2);
  EXPECT_EQ(next.count_logged("options of generation 2"), 1U) << next.all_lines();
}

TEST(SupervisorRecords, ACommittedGenerationThatCannotStartSaysWhoseOptionsItHas) {
  Harness first;
  first.serve();
  first.reconfigure("max-queued-requests", "7");
  Harness second(2, 1, "/models/small.gguf", first.committed, 2);
  second.plan_error = not_found("the model is gone");
  second.handle(Begin{});
  EXPECT_EQ(second.exit_code, 78);
  EXPECT_EQ(second.count_logged("the options of generation 2"), 2U) << second.all_lines();
}

TEST(SupervisorRecords, ANextDaemonThatIsGivenSomethingElseRunsThat) {
  Harness first;
  first.serve();
  first.reconfigure("max-queued-requests", "7");
  Harness next(1, 1, "/models/small.gguf", left_by(first), 2);
  next.handle(Begin{});
  EXPECT_EQ(next.supervisor().options().values.max_queued_requests, 1024);
  EXPECT_EQ(next.supervisor().options().values.tp, 1);
  EXPECT_EQ(next.count_logged("has changed since generation 2"), 1U) << next.all_lines();
}

TEST(SupervisorRecords, WithoutAChangeItIsSaidOnceWhoseOptionsTheyAre) {
  Harness first;
  first.serve();
  Harness next(2, 1, "/models/small.gguf", left_by(first), 1);
  next.handle(Begin{});
  EXPECT_EQ(next.records[2].cause, "start");
  EXPECT_EQ(next.count_logged("starting with the options of generation 1"), 1U) << next.all_lines();
}

TEST(SupervisorRecords, AfterAReloadTheNewFileIsWhatTheNextDaemonIsGiven) {
  Harness first;
  first.serve();
  OptionSet file;
  file.values.model = "/models/small.gguf";
  file.values.tp = 2;
  file.values.max_queued_requests = 50;
  first.command("reconfigure", Json::object({{"file_options", option_set_to_json(file)}}));
  ASSERT_EQ(first.replies.back().exit_code, 0) << first.replies.back().message;
  first.reconfigure("log-level", "error");
  const Result<OptionSet> given = option_set_from_json(first.committed->given);
  ASSERT_TRUE(given);
  EXPECT_EQ(given->values.max_queued_requests, 50);
  EXPECT_EQ(given->values.log_level, "info");
  EXPECT_EQ(first.committed->options.find("log-level")->find("value")->as_string(), "error");
}

TEST(SupervisorRecords, AnIdleDaemonThatWasKilledComesBackWithWhatItServed) {
  Harness first(2, 1, "");
  first.handle(Begin{});
  OptionSet options;
  options.values.model = "/models/other.gguf";
  first.command("start", Json::object({{"options", option_set_to_json(options)}}));
  first.bring_up_router();
  first.bring_up(0, 1);
  first.answer_probe();
  ASSERT_TRUE(first.committed);
  Harness next(2, 1, "", left_by(first), 1);
  next.handle(Begin{});
  EXPECT_EQ(next.supervisor().options().values.model, "/models/other.gguf");
  EXPECT_EQ(next.plans, 1);
}

}  // namespace
}  // namespace plimsoll
