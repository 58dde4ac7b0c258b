#include "shared/base/http_client.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/scripted_server.h"

namespace plimsoll {
namespace {

using Script = ScriptedServer::Script;

std::string with_length(const std::string& body, const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

std::string chunk(const std::string& data) {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", data.size());
  return size + data + "\r\n";
}

const std::string kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Transfer-Encoding: chunked\r\n\r\n";

TEST(HttpClient, ReadsUrls) {
  const Result<HttpUrl> plain = parse_http_url("http://localhost:8000/v1/models?x=1");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "localhost");
  EXPECT_EQ(plain->port, "8000");
  EXPECT_EQ(plain->target, "/v1/models?x=1");
  const Result<HttpUrl> six = parse_http_url("http://[::1]:9");
  ASSERT_TRUE(six);
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->port, "9");
  EXPECT_EQ(six->target, "/");
  EXPECT_EQ(parse_http_url("http://host")->port, "80");
  for (const char* bad : {"", "https://a", "http://", "http://:80", "http://a:x",
                          "http://a:", "http://[::1", "http://u@a", "http://a:123456"}) {
    EXPECT_FALSE(parse_http_url(bad)) << bad;
  }
}

TEST(HttpClient, SendsAndReceivesABody) {
  ScriptedServer server({Script{{with_length(R"({"ok":true})")}}});
  const Result<HttpAnswer> answer =
      http_exchange({.method = "POST", .url = server.url("/v1/x"), .json = R"({"a":1})"});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->content_type, "application/json");
  EXPECT_EQ(answer->body, R"({"ok":true})");
  const std::string request = server.requests().at(0);
  EXPECT_EQ(request.rfind("POST /v1/x HTTP/1.1\r\n", 0), 0U) << request;
  EXPECT_NE(request.find("Content-Type: application/json\r\n"), std::string::npos) << request;
  EXPECT_TRUE(request.ends_with("\r\n\r\n{\"a\":1}")) << request;
}

TEST(HttpClient, AnErrorStatusIsAnAnswer) {
  ScriptedServer server({Script{{with_length("{}", "503 Service Unavailable")}}});
  const Result<HttpAnswer> answer = http_exchange({.url = server.url()});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 503);
}

TEST(HttpClient, HandsOverEventsHoweverTheyAreCut) {
  const std::string first = chunk("data: one\n\ndata: t");
  ScriptedServer server(
      {Script{{kStreamHead + first.substr(0, 9), first.substr(9), chunk("wo\n\n: comment\n\n"),
               chunk("data: [DONE]\n\n"), "0\r\n\r\n"}}});
  std::vector<std::string> events;
  const Result<HttpAnswer> answer = http_stream({.url = server.url()}, [&](std::string_view data) {
    events.emplace_back(data);
    return true;
  });
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(events, (std::vector<std::string>{"one", "two", "[DONE]"}));
}

TEST(HttpClient, AStreamEndsWhereItsReaderHasEnough) {
  ScriptedServer server({Script{{kStreamHead, chunk("data: one\n\ndata: two\n\n")}, true}});
  int events = 0;
  const Result<HttpAnswer> answer = http_stream({.url = server.url()}, [&](std::string_view) {
    ++events;
    return false;
  });
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(events, 1);
}

TEST(HttpClient, AnErrorInsteadOfAStreamComesWithItsBody) {
  ScriptedServer server({Script{{with_length(R"({"error":{}})", "400 Bad Request")}}});
  const Result<HttpAnswer> answer =
      http_stream({.url = server.url()}, [](std::string_view) { return true; });
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(answer->body, R"({"error":{}})");
}

TEST(HttpClient, ASilentServerIsLeftAtTheDeadline) {
  ScriptedServer server({Script{{}, true}, Script{{kStreamHead, chunk("data: one\n\n")}, true}});
  const Result<HttpAnswer> silent =
      http_exchange({.url = server.url(), .timeout = milliseconds(50)});
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, Code::timed_out);
  EXPECT_NE(silent.error().message.find(server.url()), std::string::npos);
  const Result<HttpAnswer> stalled = http_stream({.url = server.url(), .timeout = milliseconds(50)},
                                                 [](std::string_view) { return true; });
  ASSERT_FALSE(stalled);
  EXPECT_EQ(stalled.error().code, Code::timed_out);
}

TEST(HttpClient, ALostConnectionIsAnError) {
  ScriptedServer server({Script{{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"}},
                         Script{{kStreamHead, chunk("data: one\n\n")}}, Script{{}}});
  EXPECT_EQ(http_exchange({.url = server.url()}).error().code, Code::unavailable);
  const auto all = [](std::string_view) { return true; };
  EXPECT_EQ(http_stream({.url = server.url()}, all).error().code, Code::unavailable);
  EXPECT_EQ(http_exchange({.url = server.url()}).error().code, Code::unavailable);
}

TEST(HttpClient, NobodyListensIsSaid) {
  std::string url;
  {
    const ScriptedServer gone({});
    url = gone.url();
  }
  const Result<HttpAnswer> answer = http_exchange({.url = url});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::unavailable);
  EXPECT_NE(answer.error().message.find(url), std::string::npos) << answer.error().message;
}

TEST(HttpClient, WhatIsNoHttpIsRefused) {
  ScriptedServer server({Script{{"SSH-2.0-OpenSSH\r\n\r\n"}}});
  const Result<HttpAnswer> answer = http_exchange({.url = server.url()});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::invalid) << answer.error().message;
}

}  // namespace
}  // namespace plimsoll
