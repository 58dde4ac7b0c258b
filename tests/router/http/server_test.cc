#include "router/http/server.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/router/http/server_harness.h"

namespace plimsoll {
namespace {

TEST(HttpServer, RefusesWhatIsNoTcpSocket) {
  boost::asio::io_context io;
  HttpServer server(io, {}, {});
  EXPECT_FALSE(server.listen(UniqueFd(::dup(0))));
}

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  ServerHarness server;
  RawHttp client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.post("/echo", "body " + std::to_string(i));
    RawAnswer answer = client.answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "body " + std::to_string(i));
    EXPECT_FALSE(answer.headers["date"].empty());
  }
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  ServerHarness server;
  RawHttp client(server.port());
  std::string bytes;
  for (int i = 0; i < 20; ++i) {
    bytes += "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n" + std::to_string(10 + i);
  }
  client.send(bytes);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.answer().body, std::to_string(10 + i));
}

TEST(HttpServer, TellsOfAHangUpOnce) {
  ServerHarness server;
  {
    RawHttp client(server.port());
    client.get("/silent");
    server.wait_for_silent(1);
  }
  server.wait_for_hang_ups(1);
}

TEST(HttpServer, OverTheLimitOfConnectionsIdleOnesGiveWay) {
  HttpLimits limits;
  limits.connections_max = 2;
  ServerHarness server(limits);
  RawHttp busy(server.port());
  busy.get("/silent");
  server.wait_for_silent(1);
  RawHttp idle(server.port());
  idle.get("/echo");
  EXPECT_EQ(idle.answer().status, 200);
  RawHttp next(server.port());
  next.get("/echo");
  EXPECT_EQ(next.answer().status, 200);
  EXPECT_TRUE(idle.is_closed());
}

TEST(HttpServer, WithoutIdleConnectionsNewOnesAreRefused) {
  HttpLimits limits;
  limits.connections_max = 1;
  ServerHarness server(limits);
  RawHttp busy(server.port());
  busy.get("/silent");
  server.wait_for_silent(1);
  RawHttp next(server.port());
  RawAnswer answer = next.answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers["retry-after"], "1");
}

TEST(HttpServer, WhoIsRefusedWhileSendingSeesTheAnswer) {
  HttpLimits limits;
  limits.connections_max = 1;
  ServerHarness server(limits);
  RawHttp busy(server.port());
  busy.get("/silent");
  server.wait_for_silent(1);
  for (int i = 0; i < 3; ++i) {
    RawHttp next(server.port());
    next.post("/echo", std::string(5'000'000, 'x'));
    EXPECT_EQ(next.answer().status, 503);
  }
}

HttpLimits short_grace() {
  HttpLimits limits;
  limits.last_request_time = milliseconds(100);
  limits.last_answer_time = milliseconds(100);
  return limits;
}

// Closing it would have reset it: its client had been let in, and would have been refused.
TEST(HttpServer, AConnectionThatWasAcceptedBeforeTheEndIsAnswered) {
  for (const bool in_a_hurry : {false, true}) {
    HttpLimits limits;
    limits.last_request_time = limits.last_answer_time = seconds(10);
    ServerHarness server(limits);
    RawHttp client(server.port());
    server.wait_for_connections(1);
    if (in_a_hurry) {
      server.finish();
    } else {
      server.stop_accepting();
    }
    server.wait_for_connections(1);  // behind it
    EXPECT_FALSE(server.is_quiet());
    client.post("/echo", "late");
    RawAnswer answer = client.answer();
    EXPECT_EQ(answer.body, "late");
    EXPECT_EQ(answer.headers["connection"], "close");
    EXPECT_TRUE(client.is_closed());
    client.close();
    server.wait_for_quiet();
  }
}

TEST(HttpServer, ARequestThatIsUnderWayAtTheEndIsAwaited) {
  HttpLimits limits;
  limits.last_request_time = limits.last_answer_time = Duration(0);
  ServerHarness server(limits);
  RawHttp half(server.port());
  half.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo");
  server.wait_for_connections(1);
  server.stop_accepting();
  server.wait_for_connections(1);  // behind it
  EXPECT_FALSE(server.is_quiet());
  half.send("dy");
  EXPECT_EQ(half.answer().body, "body");
  server.wait_for_quiet();
}

TEST(HttpServer, AtTheEndAClientThatKeepsItsConnectionIsServedOnceMore) {
  HttpLimits limits;
  limits.last_request_time = seconds(10);
  ServerHarness server(limits);
  RawHttp plain(server.port());
  plain.post("/echo", "one");
  EXPECT_EQ(plain.answer().body, "one");
  RawHttp stream(server.port());
  stream.get("/held");
  stream.read_until("\r\n\r\n");
  server.stop_accepting();
  server.write("text");
  server.end_held();
  stream.read_until("0\r\n\r\n");
  for (RawHttp* client : {&plain, &stream}) {
    client->post("/echo", "two");
    RawAnswer answer = client->answer();
    EXPECT_EQ(answer.body, "two");
    EXPECT_EQ(answer.headers["connection"], "close");
    EXPECT_FALSE(server.is_quiet());
    client->close();
  }
  server.wait_for_quiet();
}

TEST(HttpServer, ConnectionsThatAreNotUsedDoNotHoldUpTheEnd) {
  ServerHarness server(short_grace());
  RawHttp fresh(server.port());
  RawHttp kept(server.port());
  kept.post("/echo", "one");
  EXPECT_EQ(kept.answer().body, "one");
  server.wait_for_connections(2);
  server.stop_accepting();
  server.wait_for_quiet();
  EXPECT_TRUE(fresh.is_closed());
  EXPECT_TRUE(kept.is_closed());
}

TEST(HttpServer, BodiesTogetherHaveALimit) {
  HttpLimits limits;
  limits.bodies_bytes_max = 1000;
  ServerHarness server(limits);
  RawHttp client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" +
              std::string(2000, 'x'));
  EXPECT_EQ(client.answer().status, 503);
  RawHttp small(server.port());
  small.post("/echo", "fits");
  EXPECT_EQ(small.answer().body, "fits");
}

}  // namespace
}  // namespace plimsoll
