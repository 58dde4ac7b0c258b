#include "router/http/connection.h"

#include <gtest/gtest.h>

#include "shared/base/json.h"
#include "tests/router/http/server_harness.h"

namespace plimsoll {
namespace {

HttpLimits quick() {
  HttpLimits limits;
  limits.header_time = milliseconds(50);
  limits.body_silence = milliseconds(50);
  limits.idle_time = milliseconds(50);
  limits.sweep_every = milliseconds(10);
  return limits;
}

void expect_openai_error(const RawAnswer& answer, int status) {
  EXPECT_EQ(answer.status, status) << answer.body;
  const auto json = parse_json(answer.body);
  ASSERT_TRUE(json) << answer.body;
  ASSERT_NE(json->find("error"), nullptr);
  for (const char* name : {"message", "type", "param", "code"}) {
    EXPECT_NE(json->find("error")->find(name), nullptr) << name;
  }
  EXPECT_TRUE(answer.headers.contains("x-request-id"));
}

TEST(Connection, AHeaderThatNeverEndsIs408) {
  ServerHarness server(quick());
  RawHttp client(server.port());
  client.send("GET /echo HTTP/1.1\r\nHost:");
  expect_openai_error(client.answer(), 408);
  EXPECT_TRUE(client.is_closed());
}

TEST(Connection, ABodyThatStopsIs408) {
  ServerHarness server(quick());
  RawHttp client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  expect_openai_error(client.answer(), 408);
}

TEST(Connection, AnIdleOneIsClosed) {
  ServerHarness server(quick());
  RawHttp client(server.port());
  EXPECT_TRUE(client.is_closed());
}

TEST(Connection, MalformedHttpIsAnsweredAndTheConnectionClosed) {
  ServerHarness server;
  RawHttp client(server.port());
  client.send("\x16\x03\x01 this is TLS\r\n\r\n");
  RawAnswer answer = client.answer();
  expect_openai_error(answer, 400);
  EXPECT_EQ(answer.headers["connection"], "close");
  EXPECT_TRUE(client.is_closed());
}

TEST(Connection, ATooLargeBodyIs413BeforeItIsRead) {
  HttpLimits limits;
  limits.request.body_bytes_max = 100;
  ServerHarness server(limits);
  RawHttp client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  expect_openai_error(client.answer(), 413);
}

// The client would see a broken pipe while it sends, and never the answer.
TEST(Connection, ATooLargeBodyIsReadToItsEndSoThatItsSenderSeesTheAnswer) {
  HttpLimits limits;
  limits.request.body_bytes_max = 100;
  ServerHarness server(limits);
  constexpr std::size_t kBody = 50'000'000;
  for (const std::string head :
       {"Content-Length: 50000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n2faf080\r\n"}) {
    RawHttp client(server.port());
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\n" + head);
    const std::string piece(1'000'000, 'x');
    for (std::size_t sent = 0; sent < kBody; sent += piece.size()) client.send(piece);
    expect_openai_error(client.answer(), 413);
    EXPECT_TRUE(client.is_closed());
  }
}

TEST(Connection, WhatIsSentAfterARefusalIsReadUpToABound) {
  HttpLimits limits;
  limits.request.body_bytes_max = 100;
  limits.linger_bytes_max = 1'000'000;
  ServerHarness server(limits);
  RawHttp client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n");
  expect_openai_error(client.answer(), 413);
  EXPECT_TRUE(client.is_closed());
  client.send(std::string(1'000'001, 'x'));
  server.wait_for_connections(0);
}

TEST(Connection, ATooLargeHeaderIs431) {
  ServerHarness server;
  RawHttp client(server.port());
  client.send("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(20'000, 'a'));
  expect_openai_error(client.answer(), 431);
}

TEST(Connection, SaysContinueToWhoWaitsForIt) {
  ServerHarness server;
  RawHttp client(server.port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.answer().status, 100);
  client.send("ok");
  EXPECT_EQ(client.answer().body, "ok");
}

TEST(Connection, TakesChunkedBodiesInAnyPieces) {
  ServerHarness server;
  RawHttp client(server.port());
  const std::string bytes =
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  for (char c : bytes) client.send(std::string_view(&c, 1));
  EXPECT_EQ(client.answer().body, "abcde");
}

TEST(Connection, HeadHasNoBody) {
  ServerHarness server;
  RawHttp client(server.port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab");
  RawAnswer answer = client.answer(true);
  EXPECT_EQ(answer.headers["content-length"], "2");
  client.post("/echo", "next");
  EXPECT_EQ(client.answer().body, "next");
}

TEST(Connection, ClosesAfterConnectionClose) {
  ServerHarness server;
  RawHttp client(server.port());
  client.send("GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.answer().headers["connection"], "close");
  EXPECT_TRUE(client.is_closed());
}

TEST(Connection, Http10IsAnsweredAndClosed) {
  ServerHarness server;
  RawHttp client(server.port());
  client.send("POST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nok");
  EXPECT_EQ(client.answer().body, "ok");
  EXPECT_TRUE(client.is_closed());
}

// What had been written once counted as not taken by the client.
TEST(Connection, AStreamGoesOnAfterItsFirstWrite) {
  ServerHarness server;
  RawHttp client(server.port());
  client.get("/held");
  client.read_until("\r\n\r\n");
  for (const char* text : {"first", "second", "third"}) {
    server.write(text);
    client.read_until(text);
  }
}

// The client had no chance to read what came in one piece.
TEST(Connection, OnePieceOverTheLimitDropsNobody) {
  HttpLimits limits;
  limits.stream_bytes_max = 100'000;
  ServerHarness server(limits);
  RawHttp client(server.port());
  client.get("/held");
  client.read_until("\r\n\r\n");
  server.write(std::string(8'000'000, 'x'));
  server.write("the end");
  client.read_until("the end");
}

TEST(Connection, AClientThatDoesNotReadIsDropped) {
  HttpLimits limits;
  limits.stream_bytes_max = 100'000;
  ServerHarness server(limits);
  RawHttp slow(server.port());
  slow.receive_slowly();
  slow.get("/stream");
  server.wait_for_hang_ups(1);
}

}  // namespace
}  // namespace plimsoll
