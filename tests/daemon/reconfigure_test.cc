#include "daemon/reconfigure.h"

#include <utility>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

OptionSet flags_and_file() {
  OptionSet set;
  set.values.tp = 2;
  set.origins["tp"] = {Source::flag, "--tp"};
  set.values.port = 9000;
  set.origins["port"] = {Source::environment, "PLIMSOLL_PORT"};
  set.values.dp = 3;
  set.origins["dp"] = {Source::file, "plimsoll.conf:1"};
  set.values.state_dir = "/state";
  set.origins["state-dir"] = {Source::file, "plimsoll.conf:2"};
  return set;
}

Json pairs(const char* name, const char* value) {
  return Json::array({Json::array({name, value})});
}

TEST(Reconfigure, ReadsWhatACommandAsks) {
  const Result<ReconfigureRequest> request = read_reconfigure(
      Json::object({{"assignments", pairs("tp", "4")}, {"based_on", 7}, {"dry_run", true}}));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->assignments.front().second, "4");
  EXPECT_EQ(request->based_on, 7);
  EXPECT_TRUE(request->is_dry_run);
  EXPECT_EQ(request->cause, "reconfigure");
}

TEST(Reconfigure, RefusesWhatIsNoRequest) {
  const Json many = Json::Array(300, Json::array({"a", "b"}));
  for (const Json& arguments :
       {Json::object(), Json(nullptr), Json::object({{"assignments", 3}}),
        Json::object({{"assignments", many}}), Json::object({{"assignments", Json::array({1})}}),
        Json::object({{"options", "text"}}), Json::object({{"file_options", 1}}),
        Json::object({{"assignments", pairs("tp", "4")}, {"based_on", "x"}})}) {
    EXPECT_FALSE(read_reconfigure(arguments)) << dump_json(arguments).substr(0, 80);
  }
}

TEST(Reconfigure, AssignmentsChangeWhatIsInOperation) {
  ReconfigureRequest request;
  request.assignments = {{"tp", "4"}};
  const Result<OptionSet> next = next_options(flags_and_file(), {}, request);
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ(next->values.tp, 4);
  EXPECT_EQ(next->values.dp, 3);
  EXPECT_EQ(next->origin("tp").source, Source::reconfigured);
  request.assignments = {{"tpp", "4"}};
  EXPECT_FALSE(next_options(flags_and_file(), {}, request));
}

TEST(Reconfigure, AFileCountsWhereFlagsAndVariablesSayNothing) {
  OptionSet file;
  file.values.tp = 8;
  file.values.port = 1;
  file.values.max_queued_requests = 5;
  file.origins["max-queued-requests"] = {Source::file, "plimsoll.conf:9"};
  ReconfigureRequest request;
  request.file = file;
  OptionSet present = flags_and_file();
  present.values.dp = 7;  // by an earlier reconfigure
  const Result<OptionSet> next = next_options(present, flags_and_file(), request);
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ(next->values.tp, 2);
  EXPECT_EQ(next->origin("tp").source, Source::flag);
  EXPECT_EQ(next->values.port, 9000);
  EXPECT_EQ(next->values.dp, 1) << "the line is gone from the file";
  EXPECT_EQ(next->values.max_queued_requests, 5);
  EXPECT_EQ(next->origin("max-queued-requests").place, "plimsoll.conf:9");
  EXPECT_EQ(next->values.state_dir, "/state") << "folders are the daemon's own";
}

TEST(Reconfigure, AnEarlierGenerationIsTakenWholeButForTheFolders) {
  ReconfigureRequest request;
  request.whole = OptionSet{};
  request.whole->values.tp = 16;
  request.whole->values.state_dir = "/elsewhere";
  const Result<OptionSet> next = next_options(flags_and_file(), flags_and_file(), request);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->values.tp, 16);
  EXPECT_EQ(next->values.dp, 1);
  EXPECT_EQ(next->values.state_dir, "/state");
}

TEST(Reconfigure, ThePathFollowsFromTheStrongestEffect) {
  const auto path = [](const Options& after) {
    const OptionDiff diff = diff_options({}, after);
    return *choose_path({.diff = diff});
  };
  Options after;
  EXPECT_EQ(path(after), ChangePath::none);
  after.log_level = "debug";
  EXPECT_EQ(path(after), ChangePath::live);
  after.threads = 3;
  EXPECT_EQ(path(after), ChangePath::restart);
  const Json changes = changes_to_json(diff_options({}, after));
  ASSERT_EQ(changes.as_array().size(), 2U);
  EXPECT_EQ(changes.as_array()[0].find("name")->as_string(), "threads");
  EXPECT_EQ(changes.as_array()[1].find("effect")->as_string(), "live");
}

class ReconfigurePath : public ::testing::Test {
 protected:
  ReconfigurePath() {
    present_.dp = next_.dp = 2;
    present_.rank_bytes = next_.rank_bytes = {kGiB, kGiB};
    after_.threads = 3;
  }
  std::string path(std::optional<ChangePath> wanted = {}) {
    const OptionDiff diff = diff_options({}, after_);
    const auto chosen =
        choose_path({.diff = diff, .present = &present_, .next = &next_, .wanted = wanted});
    return chosen ? change_path_name(*chosen) : chosen.error().message;
  }
  Options after_;
  LaunchPlan present_;
  LaunchPlan next_;
};

TEST_F(ReconfigurePath, IsBesideWhereOneMoreReplicaFits) {
  next_.memory_available = 3 * kGiB;
  EXPECT_EQ(path(), "beside");
  next_.memory_available = 3 * kGiB - 1;
  EXPECT_EQ(path(), "rolling");
}

// The router has the old one's tokenizer.
TEST_F(ReconfigurePath, IsRestartWhereTheModelsFilesHaveChanged) {
  next_.memory_available = 3 * kGiB;
  present_.model_identity = {.files = "m.gguf 1:2 3 4\n", .content = "a"};
  next_.model_identity = {.files = "m.gguf 1:2 3 5\n", .content = "a"};
  EXPECT_EQ(path(), "beside") << "only touched";
  next_.model_identity.content = "b";
  EXPECT_EQ(path(), "restart");
  EXPECT_NE(path(ChangePath::rolling).find("its files have changed"), std::string::npos)
      << path(ChangePath::rolling);
}

// Packed weights of the same file and split are one block of memory for old and new ranks.
TEST_F(ReconfigurePath, WeightsThatBothMapAreCountedOnce) {
  present_.weight_bytes = next_.weight_bytes = {3 * kGiB / 4, 3 * kGiB / 4};
  next_.shares_weights = {true};
  // Three replicas of 0.25 GiB each, and 0.75 GiB of weights.
  next_.memory_available = 3 * kGiB / 2;
  EXPECT_EQ(path(), "beside");
  --next_.memory_available;
  EXPECT_EQ(path(), "rolling");
  EXPECT_NE(path(ChangePath::beside).find("768.0 MiB of weights counted once"), std::string::npos)
      << path(ChangePath::beside);
  next_.memory_available = 3 * kGiB / 2;
  next_.shares_weights = {false};
  EXPECT_EQ(path(), "hold");
}

TEST_F(ReconfigurePath, IsRollingWhereOneHasToMakeRoomForTheOther) {
  next_.memory_available = 2 * kGiB;
  EXPECT_EQ(path(), "rolling");
  next_.rank_bytes = {kGiB, kGiB + 1};
  EXPECT_EQ(path(), "hold") << "the last step does not fit";
}

TEST_F(ReconfigurePath, OfDevicesRoomForTwoIsNotKnownButOneAfterTheOtherIsInPlace) {
  next_.memory_available = 0;
  EXPECT_EQ(path(), "rolling");
  next_.tp = 2;
  EXPECT_EQ(path(), "hold");
}

TEST_F(ReconfigurePath, ReplicasThatComeToOtherDevicesAreNotInPlace) {
  next_.memory_available = 0;
  for (const char* uuid : {"GPU-2", "GPU-1"}) {
    present_.memory.ranks.emplace_back().device_uuid = uuid;
    next_.memory.ranks.emplace_back().device_uuid = uuid;
  }
  EXPECT_EQ(path(), "rolling");
  std::swap(next_.memory.ranks[0], next_.memory.ranks[1]);
  EXPECT_EQ(path(), "hold");
}

TEST_F(ReconfigurePath, OneReplicaThatIsLeftOfTwoIsHeld) {
  next_.memory_available = 2 * kGiB;
  const OptionDiff diff = diff_options({}, after_);
  PathInput input{.diff = diff, .present = &present_, .next = &next_, .running = 1};
  EXPECT_EQ(*choose_path(input), ChangePath::hold);
  input.wanted = ChangePath::rolling;
  EXPECT_FALSE(choose_path(input));
  input.running = 2;
  EXPECT_EQ(*choose_path(input), ChangePath::rolling);
}

TEST_F(ReconfigurePath, OneReplicaWithoutRoomForAnotherIsHeld) {
  present_.dp = next_.dp = 1;
  next_.memory_available = kGiB;
  EXPECT_EQ(path(), "hold");
}

TEST_F(ReconfigurePath, WhatTheRouterCannotTakeOverStartsAllAgain) {
  next_.memory_available = 100 * kGiB;
  after_.port = 9;
  EXPECT_EQ(path(), "restart");
  EXPECT_NE(path(ChangePath::beside).find("another port"), std::string::npos);
}

TEST_F(ReconfigurePath, AWantedPathIsTakenOrRefusedWithTheReason) {
  next_.memory_available = 2 * kGiB;
  EXPECT_EQ(path(ChangePath::hold), "hold");
  EXPECT_EQ(path(ChangePath::restart), "restart");
  EXPECT_NE(path(ChangePath::beside).find("need 3.00 GiB together"), std::string::npos)
      << path(ChangePath::beside);
  present_.dp = 1;
  EXPECT_NE(path(ChangePath::rolling).find("only one replica"), std::string::npos);
}

TEST_F(ReconfigurePath, NamesAreReadAsTheyAreWritten) {
  for (const ChangePath one : {ChangePath::beside, ChangePath::rolling, ChangePath::hold}) {
    const auto read = read_path(Json::object({{"path", change_path_name(one)}}));
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, one);
  }
  EXPECT_FALSE(*read_path(Json::object({{"path", "auto"}})));
  EXPECT_FALSE(*read_path(Json::object()));
  EXPECT_FALSE(read_path(Json::object({{"path", "quick"}})));
}

}  // namespace
}  // namespace plimsoll
