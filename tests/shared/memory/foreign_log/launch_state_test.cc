#include "shared/memory/foreign_log/launch_state.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

LogLine line_of(std::string_view text, const std::string& rank = "") { return {rank, text}; }

TEST(LaunchState, TheFirstCauseCountsAndItsRanksAreCounted) {
  LaunchState state(ForeignServer::sglang);
  state.fail(ForeignEnd::no_kv, line_of("first", "TP0"));
  state.fail(ForeignEnd::no_graphs, line_of("second", "TP1"));
  state.fail(ForeignEnd::no_kv, line_of("third", "TP1"));
  state.fail(ForeignEnd::no_kv, line_of("again", "TP1"));
  EXPECT_EQ(state.log().end, ForeignEnd::no_kv);
  EXPECT_EQ(state.log().end_line, "first");
  EXPECT_EQ(state.log().end_ranks, 2);
}

TEST(LaunchState, ACauseInMemoryDisplacesOneThatIsNot) {
  LaunchState state(ForeignServer::sglang);
  state.fail(ForeignEnd::other, line_of("some error"));
  state.fail(ForeignEnd::no_kv, line_of("memory"));
  EXPECT_EQ(state.log().end_line, "memory");
  state.fail(ForeignEnd::other, line_of("the echo"));
  EXPECT_EQ(state.log().end, ForeignEnd::no_kv);
}

TEST(LaunchState, AnErrorThatWasSurvivedIsForgotten) {
  LaunchState state(ForeignServer::vllm);
  state.fail(ForeignEnd::other, line_of("optional module is missing"));
  state.become_ready();
  EXPECT_EQ(state.log().end, ForeignEnd::served);
  EXPECT_TRUE(state.log().end_line.empty());
}

TEST(LaunchState, WhatRunsOutIsToldByThePhase) {
  const std::pair<RankPhase, ForeignEnd> cases[] = {{RankPhase::starting, ForeignEnd::no_weights},
                                                    {RankPhase::loading, ForeignEnd::no_weights},
                                                    {RankPhase::loaded, ForeignEnd::no_profile},
                                                    {RankPhase::sized, ForeignEnd::no_graphs},
                                                    {RankPhase::capturing, ForeignEnd::no_graphs}};
  for (const auto& [phase, end] : cases) {
    LaunchState state(ForeignServer::vllm);
    state.phase("TP1") = phase;
    state.fail_of_oom({}, line_of("oom", "TP1"));
    EXPECT_EQ(state.log().end, end);
    LaunchState unnamed(ForeignServer::vllm);
    unnamed.phase("TP1") = phase;
    unnamed.fail_of_oom({}, line_of("oom"));  // a line without a rank: the furthest one's
    EXPECT_EQ(unnamed.log().end, end);
  }
}

TEST(LaunchState, ANeighbourWithMuchOfTheDeviceIsTheCause) {
  OomLine oom;
  oom.total = 80 * kGiB;
  oom.in_use = 40 * kGiB;
  oom.named = {{.pid = 7, .bytes = 30 * kGiB}};
  LaunchState state(ForeignServer::sglang);
  state.fail_of_oom(oom, line_of("oom"));
  EXPECT_EQ(state.log().end, ForeignEnd::neighbour);
  EXPECT_EQ(state.log().total, 80 * kGiB);
}

TEST(LaunchState, WhatTheRankHoldsItselfIsNoNeighbours) {
  OomLine oom;
  oom.total = 80 * kGiB;
  oom.named = {{.pid = 40123, .bytes = 76 * kGiB}, {.pid = 2, .bytes = 21 * kGiB}};
  LaunchState state(ForeignServer::sglang);
  state.rank("TP3").weights = 33 * kGiB;
  state.rank("TP3").kv = 39 * kGiB;
  state.phase("TP3") = RankPhase::capturing;
  LogLine line = line_of("[TP3] oom");
  line.rank = "TP3";
  state.fail_of_oom(oom, line);
  EXPECT_EQ(state.log().held_by_others, 21 * kGiB);
  EXPECT_EQ(state.log().end_rank, "TP3");
  oom.named = {{.pid = 70, .bytes = 30 * kGiB}, {.pid = 2, .bytes = 40 * kGiB}};
  LaunchState numbered(ForeignServer::vllm);
  numbered.fail_of_oom(oom, line_of("(EngineCore_DP0 pid=70) oom"));
  EXPECT_EQ(numbered.log().held_by_others, 40 * kGiB) << "it has its own number";
}

TEST(LaunchState, AVersionIsOfTheArgumentsBehindIt) {
  LaunchState state(ForeignServer::vllm);
  state.set_version("0.19.1");
  state.begin_launch();
  EXPECT_EQ(state.log().version, "0.19.1");
  state.begin_launch();
  EXPECT_EQ(state.log().version, "");
}

TEST(LaunchState, EngineCoresSpeakForTheirWorkersAndAreNoRanks) {
  LaunchState state(ForeignServer::vllm);
  state.rank("DP0").kv = 2 * kGiB;
  state.fold_speakers();
  EXPECT_EQ(state.log().ranks.size(), 1U) << "alone it is the rank";
  state.rank("TP0").weights = 30 * kGiB;
  state.rank("TP1").weights = 30 * kGiB;
  state.rank("").kv = kGiB;
  state.fold_speakers();
  ASSERT_EQ(state.log().ranks.size(), 2U);
  EXPECT_EQ(state.log().ranks[0].kv, kGiB) << "the least of all, where no worker says its own";
  state.rank("DP0").kv = 9 * kGiB;
  state.fold_speakers();
  EXPECT_EQ(state.log().ranks[1].kv, kGiB);
}

TEST(LaunchState, EnginesThatLoadTheModelThemselvesAreRanks) {
  LaunchState engines(ForeignServer::vllm);
  engines.rank("DP0").weights = 30 * kGiB;
  engines.rank("DP1");  // it had not loaded yet
  engines.rank("");
  engines.fold_speakers();
  EXPECT_EQ(engines.log().ranks.size(), 2U);
  LaunchState experts(ForeignServer::vllm);
  experts.rank("DP0 EP0").weights = 30 * kGiB;
  experts.rank("DP1 EP1").weights = 30 * kGiB;
  experts.rank("DP0");
  experts.rank("DP1");
  experts.fold_speakers();
  EXPECT_EQ(experts.log().ranks.size(), 2U);
}

TEST(LaunchState, ACommandLineIsOfTheLaunchBehindIt) {
  LaunchState state(ForeignServer::sglang);
  state.give("--tp-size");
  state.begin_launch();
  state.set_arg("tp_size", "8", ArgOrigin::unknown);
  state.set_arg("port", "1", ArgOrigin::given);
  state.apply_given();
  EXPECT_EQ(state.log().arg("tp")->origin, ArgOrigin::given);
  EXPECT_EQ(state.log().arg("port")->origin, ArgOrigin::automatic);
  state.begin_launch();
  state.set_arg("port", "1", ArgOrigin::given);
  state.apply_given();
  EXPECT_EQ(state.log().arg("port")->origin, ArgOrigin::given);
}

TEST(LaunchState, NotesAndArgumentsAreBounded) {
  LaunchState state(ForeignServer::sglang);
  for (int i = 0; i < 3000; ++i) {
    state.note("note " + std::to_string(i));
    state.set_arg("arg" + std::to_string(i), "1", ArgOrigin::unknown);
  }
  EXPECT_EQ(state.log().notes.size(), 8U);
  EXPECT_EQ(state.log().args.size(), 2000U);
}

}  // namespace
}  // namespace plimsoll
