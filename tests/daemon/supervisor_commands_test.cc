// The supervisor's answers to the CLI.

#include <gtest/gtest.h>

#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

Json start_with(const std::string& model) {
  OptionSet options;
  options.values.model = model;
  options.values.tp = 2;
  options.values.state_dir = "/elsewhere";
  return Json::object({{"options", option_set_to_json(options)}});
}

TEST(SupervisorCommands, StartRepliesWhenItServes) {
  Harness h(1, 1, "");
  h.handle(Begin{});
  h.command("start", start_with("/models/small.gguf"));
  EXPECT_TRUE(h.replies.empty());
  EXPECT_EQ(h.supervisor().options().values.state_dir, "") << "the daemon's own folder stays";
  h.command("status");
  ASSERT_EQ(h.replies.size(), 1U) << "status is answered meanwhile";
  EXPECT_EQ(h.replies[0].result.find("state")->as_string(), "loading");
  EXPECT_EQ(h.replies[0].result.find("operation")->as_string(), "start");
  h.bring_up_router();
  h.bring_up(0);
  h.answer_probe();
  ASSERT_EQ(h.replies.size(), 2U);
  EXPECT_EQ(h.replies[1].exit_code, 0);
  EXPECT_EQ(h.replies[1].result.find("url")->as_string(), "http://127.0.0.1:8000");

  h.command("start", start_with("/models/small.gguf"));
  EXPECT_EQ(h.replies[2].exit_code, 75);
  EXPECT_NE(h.replies[2].message.find("already running"), std::string::npos);
}

TEST(SupervisorCommands, AStartThatFailsSaysWhyAndTheDaemonStays) {
  Harness h(1, 1, "");
  h.handle(Begin{});
  h.plan_error = does_not_fit("too little memory");
  h.command("start", start_with("/models/small.gguf"));
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 3);
  EXPECT_FALSE(h.exit_code);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::failed);
  EXPECT_EQ(h.supervisor().reason(), "too little memory");
  h.plan_error.reset();
  h.command("start", start_with("/models/small.gguf"));
  EXPECT_EQ(h.alive.size(), 3U);
}

TEST(SupervisorCommands, StopRepliesWhenNothingIsLeft) {
  Harness h;
  h.serve();
  h.command("stop");
  h.command("stop");
  EXPECT_TRUE(h.replies.empty());
  h.let_leave();
  ASSERT_EQ(h.replies.size(), 2U);
  EXPECT_EQ(h.replies[0].exit_code, 0);
  EXPECT_FALSE(h.exit_code) << "the daemon stays";
  EXPECT_EQ(h.supervisor().state(), DeploymentState::stopped);
  h.command("stop");
  EXPECT_EQ(h.replies.back().exit_code, 4);
  h.command("stop", Json::object({{"all", true}}));
  EXPECT_EQ(h.replies.back().exit_code, 0);
  EXPECT_EQ(h.exit_code, 0);
}

TEST(SupervisorCommands, StopEndsAStartThatIsUnderWay) {
  Harness h(1, 1, "");
  h.handle(Begin{});
  h.command("start", start_with("/models/small.gguf"));
  h.command("stop");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 75);
  h.let_leave();
  ASSERT_EQ(h.replies.size(), 2U);
  EXPECT_EQ(h.replies[1].exit_code, 0);
}

TEST(SupervisorCommands, RestartKeepsThePortAndMakesANewGeneration) {
  Harness h;
  h.serve();
  h.command("restart");
  h.let_leave();
  EXPECT_TRUE(h.is_listening);
  EXPECT_EQ(h.binds, 1);
  EXPECT_EQ(h.alive.size(), 3U);
  h.bring_up(0);
  h.answer_probe();
  h.pass_for(ChangeWatch::kWatchTime);
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 0);
  EXPECT_EQ(h.supervisor().generation(), 2);
}

TEST(SupervisorCommands, ARestartThatNoLongerFitsLeavesWhatRuns) {
  Harness h;
  h.serve();
  h.plan_error = does_not_fit("too little memory");
  h.command("restart");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 3);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

TEST(SupervisorCommands, LiveChangesReachEveryProcessInPlace) {
  Harness h;
  h.serve();
  h.reconfigure("log-level", "debug");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 0) << h.replies[0].message;
  EXPECT_EQ(h.count_sent<SetLive>(), 3U);
  EXPECT_EQ(h.applied_level, "debug");
  EXPECT_EQ(h.plans, 1);
  EXPECT_EQ(h.supervisor().generation(), 2);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

TEST(SupervisorCommands, ChangesOfTheRouterDrainAndStartAgain) {
  Harness h;
  h.serve();
  h.reconfigure("served-model-name", "boat");
  const std::vector<Drain> drains = h.sent<Drain>(h.peer_of(Harness::router()));
  ASSERT_EQ(drains.size(), 1U);
  EXPECT_TRUE(drains[0].is_followed) << "nobody is refused";
  EXPECT_EQ(h.supervisor().state(), DeploymentState::draining);
  h.let_leave();
  EXPECT_EQ(h.alive.size(), 3U);
  h.bring_up_router();
  h.now += seconds(4);
  h.bring_up(0);
  h.answer_probe();
  EXPECT_TRUE(h.replies.empty()) << "it is watched for a while";
  h.pass_for(seconds(2));
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 0);
  EXPECT_EQ(h.replies[0].result.find("changes")->as_array().size(), 1U);
  EXPECT_EQ(h.replies[0].result.find("path")->as_string(), "restart");
  EXPECT_EQ(h.replies[0].result.find("pause_s")->as_double(), 4.0);
  EXPECT_EQ(h.supervisor().options().values.served_model_name, "boat");
}

TEST(SupervisorCommands, AReconfigurationThatFailsWhileItIsWatchedIsTakenBack) {
  Harness h;
  h.serve();
  h.reconfigure("tp", "1");
  h.let_leave();
  h.bring_up(0, 1);
  h.answer_probe();
  ASSERT_EQ(h.supervisor().state(), DeploymentState::serving);
  h.pass_for(milliseconds(500));
  h.die(Harness::worker(0, 0), SIGABRT);
  EXPECT_EQ(h.committed->generation, 1) << "the new one was never committed";
  for (int i = 0; i < 10 && h.supervisor().generation() == 2; ++i) {
    h.pass(seconds(1));
    h.let_leave();
  }
  EXPECT_EQ(h.supervisor().generation(), 1);
  h.let_leave();
  h.bring_up(0);
  h.answer_probe();
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 75);
  EXPECT_NE(h.replies[0].message.find("SIGABRT"), std::string::npos) << h.replies[0].message;
  EXPECT_NE(h.replies[0].message.find("generation 1 serves on"), std::string::npos);
  EXPECT_EQ(h.records[2].outcome, Outcome::failed);
  EXPECT_FALSE(h.records[2].known_good);
}

TEST(SupervisorCommands, ADryRunSaysWhatWouldHappenAndTouchesNothing) {
  Harness h;
  h.serve();
  const auto dry = [&](const char* name, const char* value) {
    const Json pair = Json::array({name, value});
    h.command("reconfigure",
              Json::object({{"assignments", Json::array({pair})}, {"dry_run", true}}));
    return h.replies.back();
  };
  const Reply full = dry("tp", "1");
  EXPECT_EQ(full.exit_code, 0) << full.message;
  EXPECT_EQ(full.result.find("path")->as_string(), "hold");
  EXPECT_TRUE(full.result.find("predicted_pause_s")->is_number());
  EXPECT_TRUE(full.result.find("plan"));
  const Reply live = dry("log-level", "debug");
  EXPECT_EQ(live.exit_code, 0) << live.message;
  EXPECT_EQ(live.result.find("path")->as_string(), "live");
  h.refusal = does_not_fit("no room");
  EXPECT_EQ(dry("dp", "9").exit_code, 3);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.supervisor().generation(), 1);
  EXPECT_EQ(h.supervisor().options().values.log_level, "info");
  EXPECT_EQ(h.records.size(), 1U);
  EXPECT_STREQ(h.supervisor().operation_name(), "");
}

TEST(SupervisorCommands, AChangeForAnotherGenerationIsRefused) {
  Harness h;
  h.serve();
  h.reconfigure("log-level", "debug");
  const Json pair = Json::array({"log-level", "error"});
  h.command("reconfigure", Json::object({{"assignments", Json::array({pair})}, {"based_on", 1}}));
  EXPECT_EQ(h.replies.back().exit_code, 75);
  EXPECT_NE(h.replies.back().message.find("plimsoll diff 1 2"), std::string::npos);
  h.command("reconfigure", Json::object({{"assignments", Json::array({pair})}, {"based_on", 2}}));
  EXPECT_EQ(h.replies.back().exit_code, 0) << h.replies.back().message;
}

TEST(SupervisorCommands, ARollbackIsAGenerationWithTheOptionsOfTheEarlierOne) {
  Harness h;
  h.serve();
  h.reconfigure("max-queued-requests", "7");
  h.command("reconfigure",
            Json::object({{"options", h.records[1].options}, {"cause", "rollback to 1"}}));
  EXPECT_EQ(h.replies.back().exit_code, 0) << h.replies.back().message;
  EXPECT_EQ(h.supervisor().generation(), 3);
  EXPECT_EQ(h.supervisor().options().values.max_queued_requests, 1024);
  EXPECT_EQ(h.records[3].cause, "rollback to 1");
  EXPECT_EQ(h.records[3].based_on, 2);
}

TEST(SupervisorCommands, AReconfigurationThatDoesNotFitLeavesWhatRuns) {
  Harness h;
  h.serve();
  h.plan_error = does_not_fit("a context of 1,000,000 needs 40 GiB");
  h.reconfigure("context-length", "1000000");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 3);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_FALSE(h.supervisor().options().values.context_length);
}

TEST(SupervisorCommands, BadAssignmentsAreRefusedTogether) {
  Harness h;
  h.serve();
  const Json bad = Json::array({Json::array({"tpp", "1"}), Json::array({"port", "x"})});
  h.command("reconfigure", Json::object({{"assignments", bad}}));
  h.command("reconfigure", Json::object({{"assignments", 3}}));
  h.command("reconfigure");
  h.command("reconfigure", Json::object({{"assignments", Json::array()}, {"path", "bogus"}}));
  ASSERT_EQ(h.replies.size(), 4U);
  EXPECT_EQ(h.replies[3].exit_code, 78) << "the value of a flag";
  EXPECT_EQ(h.replies[0].exit_code, 78);
  EXPECT_NE(h.replies[0].message.find("tpp"), std::string::npos);
  EXPECT_NE(h.replies[0].message.find("port"), std::string::npos);
  EXPECT_EQ(h.replies[1].exit_code, 2);
  EXPECT_EQ(h.replies[2].exit_code, 2);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

TEST(SupervisorCommands, FixedOptionsNeedANewDaemon) {
  Harness h;
  h.serve();
  h.reconfigure("state-dir", "/var/lib/other");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 78);
  EXPECT_NE(h.replies[0].message.find("state-dir"), std::string::npos);
}

TEST(SupervisorCommands, WhenTheNewOptionsFailTheOldOnesComeBack) {
  Harness h;
  h.serve();
  h.reconfigure("tp", "1");
  h.let_leave();
  EXPECT_EQ(h.supervisor().generation(), 2);
  h.die(Harness::worker(0, 0), SIGSEGV);
  h.let_leave();
  EXPECT_EQ(h.supervisor().generation(), 1);
  ASSERT_TRUE(h.find(Harness::worker(0, 1))) << "tp 2 again";
  h.bring_up(0);
  h.answer_probe();
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 75);
  EXPECT_NE(h.replies[0].message.find("SIGSEGV"), std::string::npos);
  EXPECT_NE(h.replies[0].message.find("generation 1 serves on"), std::string::npos);
  EXPECT_EQ(h.supervisor().options().values.tp, 2);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

TEST(SupervisorCommands, ANewPortThatIsTakenTouchesNothing) {
  Harness h;
  h.serve();
  h.bind_error = unavailable("port 9000 is taken");
  h.reconfigure("port", "9000");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 75);
  EXPECT_EQ(h.replies[0].message, "port 9000 is taken");
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.table(), "0 ready");
  EXPECT_TRUE(h.is_listening);
  EXPECT_EQ(h.records[2].outcome, Outcome::refused);
  EXPECT_EQ(h.supervisor().options().values.port, Options().port);
}

TEST(SupervisorCommands, TheOldPortStaysOpenUntilTheNewOneIsCommitted) {
  Harness h;
  h.serve();
  h.reconfigure("port", "9000");
  EXPECT_EQ(h.binds, 2);
  EXPECT_EQ(h.kept, 1) << "the first start's";
  h.let_leave();
  h.bring_up_router();
  h.bring_up(0);
  h.answer_probe();
  EXPECT_EQ(h.kept, 1);
  h.pass_for(ChangeWatch::kWatchTime);
  EXPECT_EQ(h.kept, 2);
}

TEST(SupervisorCommands, WhoGoesBackAsksForTheOldPortAgain) {
  Harness h;
  h.serve();
  h.reconfigure("port", "9000");
  h.let_leave();
  h.die(Harness::worker(0, 0), SIGSEGV);
  for (int i = 0; i < 5; ++i) {
    h.pass_for(seconds(1));
    h.let_leave();
  }
  EXPECT_EQ(h.binds, 3);
  EXPECT_EQ(h.supervisor().options().values.port, Options().port);
  EXPECT_EQ(h.kept, 1);
}

TEST(SupervisorCommands, AFileCountsForTheNextDaemonOnlyWhereItReadsIt) {
  for (const bool is_own : {true, false}) {
    Harness h(1, 1, "/models/small.gguf", {}, 0, "/etc/plimsoll/plimsoll.conf");
    h.serve(1, 1);
    OptionSet file = h.supervisor().options();
    file.values.max_queued_requests = 7;
    h.command("reconfigure",
              Json::object({{"file_options", option_set_to_json(file)},
                            {"file_path", is_own ? "/etc/plimsoll/plimsoll.conf" : "/tmp/x"}}));
    ASSERT_EQ(h.replies.size(), 1U);
    EXPECT_EQ(h.replies[0].exit_code, 0) << h.replies[0].message;
    const OptionSet given = option_set_from_json(h.committed->given).value();
    EXPECT_EQ(given.values.max_queued_requests == 7, is_own);
    const OptionSet options = option_set_from_json(h.committed->options).value();
    EXPECT_EQ(options.values.max_queued_requests, 7);
  }
}

TEST(SupervisorCommands, AReloadOfWhatHasFailedStartsIt) {
  Harness h(1);
  h.serve(1, 1);
  h.end(Harness::worker(0, 0), {false, 78});
  h.let_leave();
  h.pass_for(seconds(1));
  h.let_leave();
  ASSERT_EQ(h.supervisor().state(), DeploymentState::failed) << h.all_lines();
  h.command("reconfigure",
            Json::object({{"file_options", option_set_to_json(h.supervisor().options())}}));
  EXPECT_TRUE(h.replies.empty()) << h.replies[0].message;
  h.bring_up_router();
  h.bring_up(0, 1);
  h.answer_probe();
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 0) << h.replies[0].message;
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

TEST(SupervisorCommands, AStartDuringAChangeIsRefused) {
  Harness h;
  h.serve();
  h.reconfigure("tp", "1");
  h.command("start");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 75);
  EXPECT_NE(h.replies[0].message.find("a reconfigure is under way"), std::string::npos);
}

TEST(SupervisorCommands, ChangesAreMadeOneAfterTheOther) {
  Harness h;
  h.serve();
  const std::int64_t before = h.supervisor().generation();
  h.reconfigure("no-such-option", "1");  // refused at once: nothing is under way
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 78);
  h.reconfigure("tp", "1");
  h.reconfigure("log-level", "debug");  // live, but after the other
  h.command("reconfigure", Json::object({{"assignments", Json::array({Json::array({"tp", "3"})})},
                                         {"based_on", before}}));
  EXPECT_EQ(h.replies.size(), 1U) << h.replies.back().message;
  EXPECT_EQ(h.count_logged("waits until the reconfigure is done"), 2);
  h.let_leave();
  h.bring_up(0, 1);
  h.answer_probe();
  h.pass_for(seconds(3));  // the watch
  ASSERT_EQ(h.replies.size(), 4U);
  EXPECT_EQ(h.replies[1].exit_code, 0) << h.replies[1].message;
  EXPECT_EQ(h.replies[2].exit_code, 0) << h.replies[2].message;
  EXPECT_EQ(h.supervisor().options().values.log_level, "debug");
  // Made for a generation that is no more.
  EXPECT_EQ(h.replies[3].exit_code, 75);
  EXPECT_NE(h.replies[3].message.find("the change was made for generation"), std::string::npos);
}

TEST(SupervisorCommands, WhatWaitsForAChangeIsEndedByAStop) {
  Harness h;
  h.serve();
  h.reconfigure("tp", "1");
  h.reconfigure("tp", "3");
  h.command("stop");
  ASSERT_EQ(h.replies.size(), 2U);  // the change that was under way, and the one that waited
  EXPECT_EQ(h.replies[0].exit_code, 75);
  EXPECT_EQ(h.replies[1].message, "a stop came before its turn");
}

TEST(SupervisorCommands, AnUnknownVerbIsAUsageError) {
  Harness h;
  h.serve();
  h.command("dance");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 2);
}

}  // namespace
}  // namespace plimsoll
