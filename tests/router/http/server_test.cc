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
