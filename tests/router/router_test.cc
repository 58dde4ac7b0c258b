#include "router/router.h"

#include "tests/router/router_harness.h"

namespace plimsoll {
namespace {

constexpr std::string_view kChat =
    R"({"messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":8})";

TEST(Router, TellsItsAddressAndEndsWithTheDaemon) {
  RouterHarness router;
  EXPECT_EQ(router.url(), "http://127.0.0.1:" + std::to_string(router.port()));
  router.stop();
}

TEST(Router, LetsNobodyInWhileTheDeploymentIsHeld) {
  RouterHarness router({}, {}, "held");
  FakeLeader leader(router.endpoint("leader0"));
  router.replicas({{0, "proving", leader.endpoint(), 1}}, "held");
  RawHttp client(router.port());
  client.post("/v1/completions", R"({"prompt":"xy","max_tokens":1})");
  router.tell(Probe{7, 0});
  const Generate probe = leader.next_generate();
  EXPECT_NE(probe.prompt, byte_ids("xy"));
  leader.tokens(probe.id, byte_ids("a"), "length");
  EXPECT_TRUE(router.hear<ProbeResult>().ok);
  EXPECT_EQ(router.hear<RouterStats>().open_requests, 0);
  router.replicas({{0, "ready", leader.endpoint(), 1}});
  const Generate generate = leader.next_generate();
  EXPECT_EQ(generate.prompt, byte_ids("xy"));
  leader.tokens(generate.id, byte_ids("a"), "length");
  EXPECT_EQ(client.answer().status, 200);
}

TEST(Router, AnswersACompletion) {
  RouterHarness router;
  FakeLeader& leader = router.ready_leader();
  RawHttp client(router.port());
  client.post("/v1/completions", R"({"prompt":"xy","max_tokens":3,"seed":5,"top_q":1})");
  const Generate generate = leader.next_generate();
  EXPECT_EQ(generate.prompt, byte_ids("xy"));
  EXPECT_EQ(generate.sampling.seed, 5U);
  leader.tokens(generate.id, byte_ids("ab"));
  leader.tokens(generate.id, byte_ids("c"), "length");
  RawAnswer answer = client.answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(answer.headers["x-request-id"].empty());
  EXPECT_EQ(answer.headers["x-plimsoll-unknown-fields"], "top_q");
  const Json body = parsed(answer.body);
  EXPECT_EQ(body.find("choices")->as_array()[0].find("text")->as_string(), "abc");
  EXPECT_EQ(dump_json(*body.find("usage")),
            R"({"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,)"
            R"("prompt_tokens_details":{"cached_tokens":0}})");
}

TEST(Router, StreamsEachStepAtOnce) {
  RouterHarness router;
  FakeLeader& leader = router.ready_leader();
  RawHttp client(router.port());
  client.post("/v1/chat/completions", kChat, "X-Request-Id: mine-1\r\n");
  const Generate generate = leader.next_generate();
  leader.tokens(generate.id, byte_ids("a"));
  const std::string first = client.read_until("\"content\":\"a\"");
  EXPECT_NE(first.find("X-Accel-Buffering: no\r\n"), std::string::npos);
  EXPECT_NE(first.find("Cache-Control: no-cache\r\n"), std::string::npos);
  EXPECT_NE(first.find("X-Request-Id: mine-1\r\n"), std::string::npos);
  EXPECT_NE(first.find("text/event-stream"), std::string::npos);
  EXPECT_NE(first.find("\"role\":\"assistant\""), std::string::npos);
  leader.tokens(generate.id, byte_ids("b"));
  client.read_until("\"content\":\"b\"");
  leader.tokens(generate.id, {kTinyEos}, "stop");
  EXPECT_NE(client.read_until("data: [DONE]\n\n").find("\"finish_reason\":\"stop\""),
            std::string::npos);
  client.read_until("0\r\n\r\n");
  client.get("/livez");  // the connection goes on
  EXPECT_EQ(client.answer().status, 200);
}

TEST(Router, CancelsAtAStopString) {
  RouterHarness router;
  FakeLeader& leader = router.ready_leader();
  RawHttp client(router.port());
  client.post("/v1/completions", R"({"prompt":"x","max_tokens":30,"stop":["END"]})");
  const Generate generate = leader.next_generate();
  leader.tokens(generate.id, byte_ids("okE"));
  leader.tokens(generate.id, byte_ids("NDx"));
  EXPECT_EQ(leader.next_cancel(), generate.id);
  const Json body = parsed(client.answer().body);
  const Json& choice = body.find("choices")->as_array()[0];
  EXPECT_EQ(choice.find("text")->as_string(), "ok");
  EXPECT_EQ(choice.find("finish_reason")->as_string(), "stop");
}

TEST(Router, CancelsWhenTheClientHangsUp) {
  RouterHarness router;
  FakeLeader& leader = router.ready_leader();
  {  // before any token, without a stream
    RawHttp client(router.port());
    client.post("/v1/completions", R"({"prompt":"x"})");
    const Generate generate = leader.next_generate();
    client.close();
    EXPECT_EQ(leader.next_cancel(), generate.id);
  }
  {  // in the middle of a stream, with a reset
    RawHttp client(router.port());
    client.post("/v1/chat/completions", kChat);
    const Generate generate = leader.next_generate();
    leader.tokens(generate.id, byte_ids("a"));
    client.read_until("\"content\":\"a\"");
    client.reset();
    EXPECT_EQ(leader.next_cancel(), generate.id);
  }
}

TEST(Router, AClientThatHangsUpInTheQueueNeverReachesALeader) {
  Options options;
  options.max_running_requests = 1;
  RouterHarness router(options);
  FakeLeader& leader = router.ready_leader();
  RawHttp first(router.port());
  first.post("/v1/completions", R"({"prompt":"x","max_tokens":1})");
  const Generate running = leader.next_generate();
  {
    RawHttp second(router.port());
    second.post("/v1/completions", R"({"prompt":"y"})");
    router.wait_for_waiting(1);
  }
  router.wait_for_waiting(0);
  RawHttp third(router.port());
  third.post("/v1/completions", R"({"prompt":"z"})");
  leader.tokens(running.id, byte_ids("a"), "length");
  EXPECT_EQ(first.answer().status, 200);
  EXPECT_EQ(leader.next_generate().prompt, byte_ids("z"));
}

TEST(Router, AStreamGoesOnWhereItWasWhenItsReplicaIsLost) {
  RouterHarness router;
  FakeLeader& leader = router.ready_leader();
  RawHttp client(router.port());
  client.post("/v1/completions", R"({"prompt":"xy","max_tokens":3,"stream":true,)"
                                 R"("stream_options":{"include_usage":true}})");
  const Generate lost = leader.next_generate();
  leader.tokens(lost.id, byte_ids("a"));
  client.read_until("\"text\":\"a\"");
  router.replicas({{0, "restarting", "", 1, 1, false}});
  FakeLeader again(router.endpoint("leader0b"));
  router.replicas({{0, "ready", again.endpoint(), 2, 1, false}});
  const Generate rest = again.next_generate();
  EXPECT_EQ(rest.prompt, lost.prompt);
  EXPECT_EQ(rest.emitted, byte_ids("a"));
  EXPECT_EQ(rest.sampling.seed, lost.sampling.seed);
  EXPECT_NE(rest.id, lost.id);
  again.tokens(rest.id, byte_ids("b"));
  again.tokens(rest.id, byte_ids("c"), "length");
  const std::string end = client.read_until("0\r\n\r\n");
  EXPECT_NE(end.find("\"text\":\"b\""), std::string::npos) << end;
  EXPECT_NE(end.find("\"completion_tokens\":3"), std::string::npos) << end;
  EXPECT_NE(end.find("[DONE]"), std::string::npos) << end;
  EXPECT_EQ(end.find("error"), std::string::npos) << end;
}

TEST(Router, WithoutAReplicaInTimeAStreamEndsWithAnErrorAndWithoutDone) {
  Options options;
  options.hold_deadline = milliseconds(0);
  RouterHarness router(options);
  FakeLeader& leader = router.ready_leader();
  RawHttp streaming(router.port());
  streaming.post("/v1/chat/completions", kChat);
  const Generate first = leader.next_generate();
  leader.tokens(first.id, byte_ids("a"));
  streaming.read_until("\"content\":\"a\"");
  RawHttp whole(router.port());
  whole.post("/v1/completions", R"({"prompt":"x","max_tokens":4})");
  const Generate second = leader.next_generate();
  leader.tokens(second.id, byte_ids("a"));
  // So that the token is known to be there before the loss: answers keep their order.
  RawHttp probe(router.port());
  probe.post("/v1/completions", R"({"prompt":"x","max_tokens":1})");
  leader.tokens(leader.next_generate().id, byte_ids("a"), "length");
  EXPECT_EQ(probe.answer().status, 200);
  router.replicas({{0, "restarting", "", 2}});
  const std::string end = streaming.read_to_end();
  EXPECT_NE(end.find("data: {\"error\":{\"message\":\"no replica became ready"), std::string::npos)
      << end;
  EXPECT_EQ(end.find("[DONE]"), std::string::npos);
  RawAnswer answer = whole.answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_FALSE(answer.headers["retry-after"].empty());
}

TEST(Router, ARequestWithoutTokensWaitsForTheReplicasReturn) {
  RouterHarness router;
  FakeLeader& leader = router.ready_leader();
  RawHttp client(router.port());
  client.post("/v1/completions", R"({"prompt":"xy","max_tokens":1,"seed":9})");
  const Generate lost = leader.next_generate();
  router.replicas({{0, "restarting", "", 2}});
  FakeLeader again(router.endpoint("leader0b"));
  router.replicas({{0, "ready", again.endpoint(), 2}});
  const Generate generate = again.next_generate();
  EXPECT_EQ(generate.prompt, lost.prompt);
  EXPECT_EQ(generate.sampling.seed, lost.sampling.seed);
  again.tokens(generate.id, byte_ids("a"), "length");
  EXPECT_EQ(client.answer().status, 200);
}

TEST(Router, TheQueueHasALimit) {
  Options options;
  options.max_running_requests = 1;
  options.max_queued_requests = 2;
  RouterHarness router(options);
  FakeLeader& leader = router.ready_leader();
  std::vector<std::unique_ptr<RawHttp>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<RawHttp>(router.port()));
    clients.back()->post("/v1/completions", R"({"prompt":"x","max_tokens":1})");
    if (i == 0) leader.next_generate();
    if (i <= 2) router.wait_for_waiting(i);
  }
  // One runs, two wait; five are refused at once.
  int refused = 0;
  for (int i = 3; i < 8; ++i) {
    RawAnswer answer = clients[static_cast<std::size_t>(i)]->answer();
    refused += answer.status == 503 && !answer.headers["retry-after"].empty() ? 1 : 0;
  }
  EXPECT_EQ(refused, 5);
}

TEST(Router, AProbeIsARealRequest) {
  RouterHarness router;
  FakeLeader& leader = router.ready_leader();
  router.tell(Probe{7});
  const Generate generate = leader.next_generate();
  EXPECT_EQ(generate.sampling.max_tokens, 1);
  EXPECT_EQ(generate.sampling.temperature, 0);
  EXPECT_FALSE(generate.prompt.empty());
  leader.tokens(generate.id, byte_ids("a"), "length");
  const ProbeResult good = router.hear<ProbeResult>();
  EXPECT_TRUE(good.ok) << good.message;
  EXPECT_EQ(good.sequence, 7);
  router.tell(Probe{8});
  leader.error(leader.next_generate().id, "internal", "broken");
  const ProbeResult bad = router.hear<ProbeResult>();
  EXPECT_FALSE(bad.ok);
  EXPECT_NE(bad.message.find("broken"), std::string::npos);
}

TEST(Router, ADrainFinishesWhatRunsAndRefusesTheRest) {
  RouterHarness router;
  FakeLeader& leader = router.ready_leader();
  RawHttp client(router.port());
  client.post("/v1/chat/completions", kChat);
  const Generate generate = leader.next_generate();
  leader.tokens(generate.id, byte_ids("a"));
  client.read_until("\"content\":\"a\"");
  router.tell(Drain{60'000});
  router.wait_for_health(503);
  RawHttp late(router.port());
  late.post("/v1/completions", R"({"prompt":"x"})");
  RawAnswer refused = late.answer();
  EXPECT_EQ(refused.status, 503);
  EXPECT_FALSE(refused.headers["retry-after"].empty());
  leader.tokens(generate.id, byte_ids("b"), "length");
  EXPECT_NE(client.read_until("0\r\n\r\n").find("[DONE]"), std::string::npos);
  EXPECT_EQ(router.wait_for_exit(), 0);
}

TEST(Router, ADrainEndsStreamsAtItsDeadline) {
  RouterHarness router;
  FakeLeader& leader = router.ready_leader();
  RawHttp client(router.port());
  client.post("/v1/chat/completions", kChat);
  const Generate generate = leader.next_generate();
  leader.tokens(generate.id, byte_ids("a"));
  client.read_until("\"content\":\"a\"");
  router.tell(Drain{1});
  const std::string end = client.read_to_end();
  EXPECT_NE(end.find("data: {\"error\":"), std::string::npos) << end;
  EXPECT_EQ(end.find("[DONE]"), std::string::npos);
  EXPECT_EQ(leader.next_cancel(), generate.id);
  EXPECT_EQ(router.wait_for_exit(), 0);
}

TEST(Router, WhileItLoadsRequestsAreHeldAndHealthIsNotGreen) {
  RouterHarness router;
  router.replicas({{0, "loading", "", 1}}, "loading");
  RawHttp client(router.port());
  client.get("/health");
  EXPECT_EQ(client.answer().status, 503);
  client.get("/livez");
  EXPECT_EQ(client.answer().status, 200);
  client.post("/v1/completions", R"({"prompt":"x"})");
  router.wait_for_waiting(1);
  FakeLeader& leader = router.ready_leader();
  leader.tokens(leader.next_generate().id, byte_ids("a"), "length");
  EXPECT_EQ(client.answer().status, 200);
}

TEST(Router, WhereNothingWillComeRequestsFailAtOnce) {
  RouterHarness router;
  router.replicas({{0, "failed", "", 1}}, "failed");
  router.wait_for_health(503);
  RawHttp client(router.port());
  client.post("/v1/completions", R"({"prompt":"x"})");
  RawAnswer answer = client.answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_FALSE(answer.headers["retry-after"].empty());
}

TEST(Router, BehindADrainThatIsFollowedNobodyIsRefused) {
  HttpLimits limits;
  limits.last_request_time = milliseconds(100);
  RouterHarness router({}, limits);
  FakeLeader& leader = router.ready_leader();
  RawHttp stream(router.port());
  stream.post("/v1/chat/completions", kChat);
  const Generate first = leader.next_generate();
  RawHttp kept(router.port());
  kept.get("/livez");
  EXPECT_EQ(kept.answer().status, 200);
  RawHttp health(router.port());
  health.get("/livez");
  EXPECT_EQ(health.answer().status, 200);
  router.tell(Drain{60'000, true});
  int status = 200;  // until the drain has come
  for (const TimePoint end = now() + seconds(10); status == 200 && now() < end;) {
    health.get("/health");
    status = health.answer().status;
  }
  EXPECT_EQ(status, 503);
  // A connection that was there is served once more; then it ends, so that the next one waits.
  kept.post("/v1/completions", R"({"prompt":"x","max_tokens":1})");
  leader.tokens(leader.next_generate().id, byte_ids("a"), "length");
  RawAnswer answer = kept.answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers["connection"], "close");
  leader.tokens(first.id, byte_ids("b"), "length");
  EXPECT_NE(stream.read_until("0\r\n\r\n").find("[DONE]"), std::string::npos);
  EXPECT_EQ(router.wait_for_exit(), 0);
}

TEST(Router, WhoWasLetInAndSendsItsRequestOnlyBehindTheDrainIsServed) {
  HttpLimits limits;
  limits.last_request_time = seconds(20);  // it does not matter how late
  RouterHarness router({}, limits);
  FakeLeader& leader = router.ready_leader();
  RawHttp late(router.port());
  RawHttp later(router.port());
  later.get("/livez");  // which says that the earlier one was accepted too
  EXPECT_EQ(later.answer().status, 200);
  router.tell(Drain{60'000, true});
  int status = 200;  // until the drain has come
  for (const TimePoint end = now() + seconds(10); status == 200 && now() < end;) {
    later.get("/health");
    status = later.answer().status;
  }
  EXPECT_EQ(status, 503);
  late.post("/v1/completions", R"({"prompt":"x","max_tokens":1})");
  leader.tokens(leader.next_generate().id, byte_ids("a"), "length");
  EXPECT_EQ(late.answer().status, 200);
  late.close();
  EXPECT_EQ(router.wait_for_exit(), 0);
}

TEST(Router, ABrokenConnectionToALeaderIsMadeAgainAndItsStreamsGoOn) {
  RouterHarness router;
  FakeLeader& leader = router.ready_leader();
  RawHttp client(router.port());
  client.post("/v1/chat/completions", kChat);
  const Generate first = leader.next_generate();
  leader.tokens(first.id, byte_ids("a"));
  client.read_until("\"content\":\"a\"");
  ASSERT_TRUE(leader.break_connection());
  const Generate again = leader.next_generate();
  EXPECT_EQ(again.emitted, byte_ids("a"));
  EXPECT_NE(again.id, first.id);
  leader.tokens(again.id, byte_ids("b"), "length");
  const std::string rest = client.read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("\"content\":\"b\""), std::string::npos) << rest;
  EXPECT_NE(rest.find("[DONE]"), std::string::npos);
}

TEST(Router, SpreadsRequestsOverReplicas) {
  RouterHarness router;
  FakeLeader first(router.endpoint("a"));
  FakeLeader second(router.endpoint("b"));
  router.replicas({{0, "ready", first.endpoint(), 1}, {1, "ready", second.endpoint(), 1}});
  router.wait_for_health(200);
  RawHttp one(router.port());
  RawHttp two(router.port());
  one.post("/v1/completions", R"({"prompt":"x"})");
  two.post("/v1/completions", R"({"prompt":"y"})");
  const Generate at_first = first.next_generate();
  const Generate at_second = second.next_generate();
  EXPECT_NE(at_first.prompt, at_second.prompt);
}

}  // namespace
}  // namespace plimsoll
