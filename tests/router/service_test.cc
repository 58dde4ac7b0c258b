#include "router/service.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "shared/base/log.h"
#include "shared/options/option_set.h"
#include "tests/router/tiny_context.h"

namespace plimsoll {
namespace {

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() : service_(tiny_context(), {.limits = {}, .random_seed = 1}) { take(); }

  void ready(std::int64_t count = 1, std::int64_t incarnation = 1) {
    Replicas replicas{"serving", "", {}};
    for (std::int64_t i = 0; i < count; ++i) {
      replicas.replicas.push_back({i, "ready", "ipc://x", incarnation});
    }
    service_.daemon_message(replicas, time_);
    take();
  }
  void post(ExchangeId exchange, std::string path, std::string body) {
    service_.http_request(exchange, json_request(std::move(path), std::move(body)), time_);
    take();
  }
  void complete(ExchangeId exchange, std::string body) {
    post(exchange, "/v1/completions", std::move(body));
  }
  HttpResponse get(std::string path, std::string method = "GET") {
    HttpRequest request;
    request.method = std::move(method);
    request.path = std::move(path);
    request.request_id = "req-1";
    service_.http_request(99, request, time_);
    take();
    return responses_.contains(99) ? responses_.at(99) : HttpResponse{};
  }
  void tokens(std::uint64_t id, std::string_view text, std::string finish = "") {
    StepTokens step;
    step.events.push_back(event_of(id, text));
    step.events.back().finish = std::move(finish);
    service_.leader_tokens(0, std::move(step), time_);
    take();
  }
  void broken(std::uint64_t id) {
    StepTokens step;
    step.events.push_back(event_of(id, ""));
    step.events.back().finish = "error";
    step.events.back().error_code = "internal";
    step.events.back().error = "broken";
    service_.leader_tokens(0, std::move(step), time_);
    take();
  }
  static TokenEvent event_of(std::uint64_t id, std::string_view text) {
    TokenEvent event;
    event.id = id;
    event.tokens = byte_ids(text);
    return event;
  }
  void tick(Duration later) {
    time_ += later;
    service_.tick(time_);
    take();
  }
  void take() {
    responses_.clear(), streams_.clear(), sent_.clear(), cancelled_.clear(), said_.clear();
    ended_.clear();
    for (RouterAction& action : service_.take_actions()) {
      if (auto* one = std::get_if<Respond>(&action)) {
        responses_.emplace(one->exchange, std::move(one->response));
      } else if (auto* data = std::get_if<StreamData>(&action)) {
        streams_[data->exchange] += data->data;
      } else if (auto* end = std::get_if<EndStream>(&action)) {
        ended_.emplace(end->exchange, end->keep_alive);
      } else if (auto* leader = std::get_if<ToLeader>(&action)) {
        if (auto* generate = std::get_if<Generate>(&leader->message)) sent_.push_back(*generate);
        if (auto* cancel = std::get_if<Cancel>(&leader->message)) cancelled_.push_back(cancel->id);
      } else if (auto* daemon = std::get_if<ToDaemon>(&action)) {
        said_.push_back(std::move(daemon->message));
      } else if (std::holds_alternative<StopAccepting>(action)) {
        stopped_accepting_ = true;
      } else if (std::holds_alternative<Exit>(action)) {
        exited_ = true;
      } else if (auto* level = std::get_if<SetLogLevel>(&action)) {
        log_level_ = level->level;
      }
    }
  }

  TimePoint time_ = TimePoint() + seconds(1000);
  Service service_;
  std::map<ExchangeId, HttpResponse> responses_;
  std::map<ExchangeId, std::string> streams_;
  std::map<ExchangeId, bool> ended_;  // whether the connection may go on
  std::vector<Generate> sent_;
  std::vector<std::uint64_t> cancelled_;
  std::vector<Message> said_;
  bool exited_ = false;
  bool stopped_accepting_ = false;
  std::string log_level_;
};

TEST_F(ServiceTest, EveryAnswerHasARequestId) {
  for (const char* path : {"/livez", "/health", "/nothing", "/v1/completions"}) {
    const HttpResponse response = get(path);
    const bool has = std::ranges::any_of(
        response.headers, [](const auto& header) { return header.first == "X-Request-Id"; });
    EXPECT_TRUE(has) << path;
  }
}

TEST_F(ServiceTest, ServesEveryPlainRoute) {
  ready();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/readyz").status, 200);
  EXPECT_EQ(get("/livez").status, 200);
  EXPECT_EQ(get("/v1/models").status, 200);
  EXPECT_EQ(get("/v1/models/ship").status, 200);
  EXPECT_EQ(get("/v1/models/boat").status, 404);
  EXPECT_EQ(get("/version").body, "{\"version\":\"" PLIMSOLL_VERSION "\"}");
  EXPECT_NE(get("/metrics").body.find("plimsoll_replicas_ready"), std::string::npos);
  EXPECT_EQ(get("/v1/completions", "OPTIONS").status, 204);
  EXPECT_EQ(get("/v1/completions").status, 405);
}

TEST_F(ServiceTest, ABatchIsAnsweredWhenItsLastChoiceEnds) {
  ready();
  complete(1, R"({"prompt":["x","y"],"max_tokens":2})");
  ASSERT_EQ(sent_.size(), 2U);
  const std::vector<Generate> sent = sent_;
  tokens(sent[1].id, "bb", "length");
  EXPECT_TRUE(responses_.empty());
  tokens(sent[0].id, "aa", "length");
  ASSERT_TRUE(responses_.contains(1));
  const Json body = parsed(responses_.at(1).body);
  EXPECT_EQ(body.find("choices")->as_array()[1].find("text")->as_string(), "bb");
}

TEST_F(ServiceTest, OneLostChoiceEndsTheRequestAndCancelsTheOthers) {
  ready();
  complete(1, R"({"prompt":"x","n":3})");
  const std::vector<Generate> sent = sent_;
  ASSERT_EQ(sent.size(), 3U);
  broken(sent[1].id);
  EXPECT_EQ(responses_.at(1).status, 500);
  EXPECT_EQ(cancelled_, (std::vector<std::uint64_t>{sent[0].id, sent[2].id}));
}

TEST_F(ServiceTest, AHangUpCancelsEveryChoice) {
  ready();
  complete(1, R"({"prompt":"x","n":2,"stream":true})");
  const std::vector<Generate> sent = sent_;
  service_.hung_up(1, time_);
  take();
  EXPECT_EQ(cancelled_, (std::vector<std::uint64_t>{sent[0].id, sent[1].id}));
  tokens(sent[0].id, "a");
  EXPECT_TRUE(streams_.empty() && responses_.empty());
}

TEST_F(ServiceTest, IdsAreNeverUsedAgain) {
  ready();
  complete(1, R"({"prompt":"x"})");
  const std::uint64_t first = sent_[0].id;
  tokens(first, "a", "length");
  complete(2, R"({"prompt":"x"})");
  EXPECT_GT(sent_[0].id, first);
}

TEST_F(ServiceTest, SeedsThatClientsLeaveOutDiffer) {
  ready();
  complete(1, R"({"prompt":"x"})");
  const std::uint64_t first = sent_[0].sampling.seed;
  complete(2, R"({"prompt":"x"})");
  EXPECT_NE(sent_[0].sampling.seed, first);
}

TEST_F(ServiceTest, AnEngineErrorInAStreamIsItsLastEvent) {
  ready();
  complete(1, R"({"prompt":"x","stream":true})");
  const std::uint64_t id = sent_[0].id;
  tokens(id, "a");
  broken(id);
  EXPECT_TRUE(streams_.at(1).starts_with("data: {\"error\":")) << streams_.at(1);
  EXPECT_FALSE(ended_.at(1));
}

TEST_F(ServiceTest, ALongWaitGetsItsHeadAndThenComments) {
  ready();
  post(1, "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true})");
  tick(seconds(9));
  EXPECT_TRUE(streams_.empty());
  tick(seconds(2));
  EXPECT_NE(streams_.at(1).find("\"role\":\"assistant\""), std::string::npos);
  tick(seconds(16));
  EXPECT_EQ(streams_.at(1), ": still working\n\n");
}

TEST_F(ServiceTest, AProbeAsksEveryReadyReplica) {
  ready(2);
  service_.daemon_message(Probe{3}, time_);
  take();
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_TRUE(said_.empty());
}

TEST_F(ServiceTest, AProbeRunsWhileHealthStillWaitsForIt) {
  service_.daemon_message(Replicas{"warming", "", {{0, "ready", "ipc://x", 1}}}, time_);
  take();
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/readyz").status, 503);
  service_.daemon_message(Probe{3}, time_);
  take();
  ASSERT_EQ(sent_.size(), 1U);
  tokens(sent_[0].id, "x", "length");
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_TRUE(std::get<ProbeResult>(said_[0]).ok);
  ready();
  EXPECT_EQ(get("/readyz").status, 200);
}

TEST_F(ServiceTest, AProbeWithoutReplicasFailsAtOnce) {
  service_.daemon_message(Probe{3}, time_);
  take();
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_FALSE(std::get<ProbeResult>(said_[0]).ok);
}

TEST_F(ServiceTest, AProbeWithoutAnAnswerFailsInTime) {
  ready();
  service_.daemon_message(Probe{3}, time_);
  take();
  const std::uint64_t id = sent_.at(0).id;
  tick(seconds(31));
  ASSERT_FALSE(said_.empty());
  EXPECT_FALSE(std::get<ProbeResult>(said_[0]).ok);
  EXPECT_EQ(cancelled_, (std::vector<std::uint64_t>{id}));
}

TEST_F(ServiceTest, StatsAreSaidEachSecondAsASignOfLife) {
  ready();
  complete(1, R"({"prompt":"x"})");
  tick(seconds(1));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_EQ(std::get<RouterStats>(said_[0]).open_requests, 1);
  tick(milliseconds(250));
  EXPECT_TRUE(said_.empty());
  tick(seconds(1));
  EXPECT_EQ(said_.size(), 1U);
}

TEST_F(ServiceTest, LiveChangesReachTheQueueAndTheLog) {
  ready();
  service_.daemon_message(SetLive{"debug", 1, 250, 60'000}, time_);
  take();
  EXPECT_EQ(log_level_, "debug");
  service_.daemon_message(Replicas{"serving", "", {{0, "restarting", "", 2}}}, time_);
  complete(1, R"({"prompt":"x"})");
  complete(2, R"({"prompt":"x"})");
  EXPECT_EQ(responses_.at(2).status, 503);
}

TEST_F(ServiceTest, AQueueOfNoneIsALiveChangeToo) {
  ready();
  service_.daemon_message(SetLive{"", 0, 250, 60'000}, time_);
  service_.daemon_message(Replicas{"serving", "", {{0, "restarting", "", 2}}}, time_);
  complete(1, R"({"prompt":"x"})");
  EXPECT_EQ(responses_.at(1).status, 503);
}

TEST_F(ServiceTest, AnIdleServiceDrainsAtOnce) {
  service_.daemon_message(Drain{10'000}, time_);
  take();
  EXPECT_TRUE(exited_);
}

TEST_F(ServiceTest, ADrainWaitsForWhatIsOpenUntilItsDeadline) {
  ready();
  complete(1, R"({"prompt":"x"})");
  service_.daemon_message(Drain{10'000}, time_);
  take();
  EXPECT_FALSE(exited_);
  complete(2, R"({"prompt":"x"})");
  EXPECT_EQ(responses_.at(2).status, 503);
  EXPECT_EQ(get("/health").status, 503);
  tick(seconds(9));
  EXPECT_FALSE(exited_);
  tick(seconds(1));
  EXPECT_TRUE(exited_);
  EXPECT_EQ(responses_.at(1).status, 503);
}

TEST_F(ServiceTest, WhoeverTerminatesItEndsWhatIsOpenAndLetsOthersWait) {
  ready();
  complete(1, R"({"prompt":"x","stream":true})");
  tokens(sent_.at(0).id, "a");
  service_.terminated(time_);
  take();
  EXPECT_TRUE(stopped_accepting_);
  EXPECT_TRUE(exited_);
  EXPECT_NE(streams_[1].find("the router is started again"), std::string::npos);
}

TEST_F(ServiceTest, ASignalAtTheEndOfADrainSaysThatTheServerHasStopped) {
  ready();
  complete(1, R"({"prompt":"x"})");
  service_.daemon_message(Drain{10'000}, time_);
  service_.terminated(time_);
  take();
  EXPECT_TRUE(exited_);
  EXPECT_NE(responses_.at(1).body.find("the server stopped"), std::string::npos);
}

TEST_F(ServiceTest, BehindADrainThatIsFollowedRequestsAreServed) {
  ready();
  complete(1, R"({"prompt":"x"})");
  service_.daemon_message(Drain{10'000, true}, time_);
  take();
  EXPECT_TRUE(stopped_accepting_);
  complete(2, R"({"prompt":"x"})");
  EXPECT_TRUE(responses_.empty());
  ASSERT_EQ(sent_.size(), 1U);
  tokens(sent_[0].id, "a", "length");
  EXPECT_FALSE(exited_);
}

TEST_F(ServiceTest, ItIsDrainedWhenNoConnectionIsLeftThatMayBringARequest) {
  ready();
  service_.daemon_message(Drain{10'000, true}, time_);
  take();
  EXPECT_TRUE(stopped_accepting_);
  EXPECT_FALSE(exited_);
  complete(1, R"({"prompt":"x"})");
  ASSERT_EQ(sent_.size(), 1U);
  tokens(sent_[0].id, "a", "length");
  EXPECT_EQ(responses_.at(1).status, 200);
  EXPECT_FALSE(exited_);
  service_.all_answered(time_);
  take();
  EXPECT_TRUE(exited_);
}

TEST_F(ServiceTest, ConnectionsThatBringNothingHoldItUpToItsDeadline) {
  service_.daemon_message(Drain{10'000, true}, time_);
  tick(seconds(9));
  EXPECT_FALSE(exited_);
  tick(seconds(1));
  EXPECT_TRUE(exited_);
}

TEST_F(ServiceTest, AProbeOfOneReplicaAsksNoOther) {
  ready(2);
  service_.daemon_message(Probe{3, 1}, time_);
  take();
  EXPECT_EQ(sent_.size(), 1U);
}

TEST_F(ServiceTest, LaterSetupsChangeTheLimits) {
  ready();
  Options options;
  options.max_queued_requests = 0;
  options.max_running_requests = 1;
  service_.daemon_message(RouterSetup{option_set_to_json({options, {}}), "", "", 8}, time_);
  complete(1, R"({"prompt":"xxxxxxxxxxxxxxxx"})");
  EXPECT_EQ(responses_.at(1).status, 400);
  complete(2, R"({"prompt":"x","max_tokens":1})");
  EXPECT_EQ(sent_.size(), 1U);
  complete(3, R"({"prompt":"x","max_tokens":1})");
  EXPECT_EQ(responses_.at(3).status, 503) << "one runs, none may wait";
}

TEST_F(ServiceTest, FiguresNameTheLongestAnswerThatMayCome) {
  ready();
  complete(1, R"({"prompt":"x","max_tokens":7})");
  tokens(sent_.at(0).id, "a");
  tick(seconds(1));
  const auto* stats = std::get_if<RouterStats>(&said_.at(0));
  ASSERT_NE(stats, nullptr);
  EXPECT_EQ(stats->tokens_left_max, 6);
}

TEST_F(ServiceTest, TokensOfOneStepMakeOneWriteAStream) {
  ready();
  complete(1, R"({"prompt":"x","n":2,"stream":true})");
  const std::vector<Generate> sent = sent_;
  StepTokens step;
  step.events.push_back(event_of(sent[0].id, "a"));
  step.events.push_back(event_of(sent[1].id, "b"));
  service_.leader_tokens(0, std::move(step), time_);
  int writes = 0;
  for (const RouterAction& action : service_.take_actions()) {
    writes += std::holds_alternative<StreamData>(action) ? 1 : 0;
  }
  EXPECT_EQ(writes, 1);
}

TEST_F(ServiceTest, WhatFitsNoLeaderIsRefusedAfterAFewTries) {
  ready();
  complete(1, R"({"prompt":"x"})");
  for (int tries = 0; responses_.empty(); ++tries) {
    ASSERT_LT(tries, 20);
    if (!sent_.empty()) {
      service_.send_failed(sent_.at(0).id, unavailable("its queue is full"), time_);
    }
    tick(milliseconds(250));
  }
  EXPECT_EQ(responses_.at(1).status, 503);
  EXPECT_NE(responses_.at(1).body.find("its queue is full"), std::string::npos);
}

TEST_F(ServiceTest, OneCauseThatFailsManyRequestsIsLoggedOnce) {
  ready();
  for (ExchangeId exchange = 1; exchange <= 90; ++exchange) {
    complete(exchange, R"({"prompt":"x","stream":true})");
  }
  ::testing::internal::CaptureStderr();
  log_start("router", LogLevel::info);
  service_.daemon_message(Replicas{"failed", "it broke", {{0, "failed", "", 1}}}, time_);
  take();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(log, '\n'), 2) << log;  // what was lost, and what failed with it
  EXPECT_NE(log.find("and 87 more failed"), std::string::npos) << log;
}

TEST_F(ServiceTest, ARequestThatGoesOnElsewhereIsCountedOnce) {
  ready(2);
  complete(1, R"({"prompt":"xy","max_tokens":3})");
  tokens(sent_.at(0).id, "a");
  service_.daemon_message(
      Replicas{"serving", "", {{0, "restarting", "", 1, 1, false}, {1, "ready", "ipc://x", 1}}},
      time_);
  take();
  ASSERT_EQ(sent_.size(), 1U);
  StepTokens rest;
  rest.events.push_back(event_of(sent_[0].id, "bc"));
  rest.events.back().finish = "length";
  service_.leader_tokens(1, std::move(rest), time_);
  take();
  const Json body = parsed(responses_.at(1).body);
  EXPECT_EQ(body.find("choices")->as_array()[0].find("text")->as_string(), "abc");
  EXPECT_EQ(body.find("usage")->find("completion_tokens")->as_int(), 3);
  const std::string metrics = get("/metrics").body;
  EXPECT_NE(metrics.find("plimsoll_requests_resumed_total{model_name=\"ship\"} 1"),
            std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("plimsoll_generation_tokens_total{model_name=\"ship\"} 3"),
            std::string::npos);
}

}  // namespace
}  // namespace plimsoll
