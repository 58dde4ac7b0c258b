#include "router/http/request_reader.h"

#include <random>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using State = RequestReader::State;

std::string post(std::string_view headers, std::string_view body) {
  return "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + std::string(headers) + "\r\n" +
         std::string(body);
}

// Feeds pieces as a connection does: what is not taken comes again with the next.
std::size_t feed_all(RequestReader& reader, std::string_view bytes, std::size_t piece) {
  std::string pending;
  std::size_t taken = 0;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    pending += bytes.substr(at, piece);
    const std::size_t used = reader.feed(pending);
    taken += used;
    pending.erase(0, used);
    if (reader.state() == State::failed || reader.state() == State::complete) break;
  }
  return taken;
}

HttpRequest read(std::string_view bytes) {
  RequestReader reader({});
  EXPECT_EQ(reader.feed(bytes), bytes.size());
  EXPECT_EQ(reader.state(), State::complete);
  return reader.state() == State::complete ? reader.take() : HttpRequest{};
}

ApiError refused(std::string_view bytes, RequestLimits limits = {}) {
  RequestReader reader(limits);
  reader.feed(bytes);
  EXPECT_EQ(reader.state(), State::failed) << bytes.substr(0, 200);
  return reader.state() == State::failed ? reader.refusal() : ApiError{};
}

TEST(RequestReader, ReadsTheParts) {
  const HttpRequest request = read(
      "POST /tokenize?a=1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "X-Request-Id: abc-1\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/tokenize");
  EXPECT_EQ(request.query, "a=1");
  EXPECT_EQ(request.content_type, "application/json");
  EXPECT_EQ(request.request_id, "abc-1");
  EXPECT_EQ(request.body, "{}");
}

TEST(RequestReader, ATargetMayBeAWholeUrl) {
  const HttpRequest request = read("GET HTTP://x:8000/health?a=1 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(request.path, "/health");
  EXPECT_EQ(request.query, "a=1");
  EXPECT_EQ(read("GET https://x HTTP/1.1\r\nHost: x\r\n\r\n").path, "/");
  const HttpRequest bare = read("GET http://x?a=1 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(bare.path, "/");
  EXPECT_EQ(bare.query, "a=1");
}

TEST(RequestReader, AHarmfulRequestIdIsDropped) {
  EXPECT_EQ(read("GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: a b\r\n\r\n").request_id, "");
}

TEST(RequestReader, LeavesTheNextRequestAlone) {
  const std::string first = post("Content-Length: 2\r\n", "{}");
  RequestReader reader({});
  EXPECT_EQ(reader.feed(first + "GET / HTTP/1.1\r\n"), first.size());
  EXPECT_EQ(reader.state(), State::complete);
  EXPECT_TRUE(reader.keep_alive());
}

TEST(RequestReader, ReadsChunkedBodiesWithExtensionsAndTrailers) {
  const std::string bytes =
      post("Transfer-Encoding: chunked\r\n", "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n");
  EXPECT_EQ(read(bytes).body, "abcde");
}

TEST(RequestReader, AnyCutGivesTheSameRequest) {
  const std::string chunked = post("Transfer-Encoding: chunked\r\n",
                                   "3\r\nabc\r\n1;e\r\nd\r\na\r\n0123456789\r\n0\r\n\r\n");
  const std::string plain = post("Content-Length: 12\r\n", "hello world!");
  for (const std::string& bytes : {chunked, plain}) {
    const std::string body = read(bytes).body;
    for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
      RequestReader reader({});
      EXPECT_EQ(feed_all(reader, bytes, piece), bytes.size()) << piece;
      ASSERT_EQ(reader.state(), State::complete) << piece;
      EXPECT_EQ(reader.take().body, body) << piece;
    }
  }
}

TEST(RequestReader, KnowsWhoWaitsForContinue) {
  RequestReader reader({});
  reader.feed(post("Content-Length: 2\r\nExpect: 100-continue\r\n", ""));
  EXPECT_EQ(reader.state(), State::body);
  EXPECT_TRUE(reader.wants_continue());
  reader.feed("{}");
  EXPECT_FALSE(reader.wants_continue());
}

TEST(RequestReader, KnowsHowTheConnectionGoesOn) {
  RequestReader close({});
  close.feed("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_FALSE(close.keep_alive());
  RequestReader old({});
  old.feed("HEAD / HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(old.http_1_0());
  EXPECT_TRUE(old.is_head());
  EXPECT_FALSE(old.keep_alive());
}

TEST(RequestReader, LimitsHold) {
  const RequestLimits limits = {.header_bytes_max = 256, .body_bytes_max = 16};
  EXPECT_EQ(refused("GET / HTTP/1.1\r\nX: " + std::string(400, 'a'), limits).status, 431);
  EXPECT_EQ(refused(post("Content-Length: 17\r\n", ""), limits).status, 413);
  EXPECT_EQ(refused(post("Content-Length: 99999999999999\r\n", ""), limits).status, 413);
  EXPECT_EQ(refused(post("Transfer-Encoding: chunked\r\n", "11\r\n" + std::string(17, 'a')), limits)
                .status,
            413);
  const std::string extension = "1;" + std::string(400, 'x');
  EXPECT_EQ(refused(post("Transfer-Encoding: chunked\r\n", extension), limits).status, 431);
}

TEST(RequestReader, MalformedHttpIsRefused) {
  for (const char* bytes : {
           "\x16\x03\x01\x02",
           "GET\r\n\r\n",
           "GET / HTTP/1.1\r\nno colon\r\n\r\n",
           "GET / HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
           "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
           "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
           "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
           "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: "
           "chunked\r\n\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabcdefgh",
       }) {
    EXPECT_EQ(refused(bytes).status, 400) << bytes;
  }
}

TEST(RequestReader, OtherVersionsAndEncodingsAreRefused) {
  EXPECT_EQ(refused("GET / HTTP/2.0\r\nHost: x\r\n\r\n").status, 505);
  EXPECT_EQ(refused(post("Transfer-Encoding: gzip\r\n", "")).status, 501);
  EXPECT_EQ(refused(post("Transfer-Encoding: gzip, chunked\r\n", "")).status, 501);
  EXPECT_EQ(refused(post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "{}")).status, 415);
  EXPECT_EQ(read(post("Content-Encoding: identity\r\nContent-Length: 2\r\n", "{}")).body, "{}");
  EXPECT_EQ(refused("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n").status, 405);
}

}  // namespace
}  // namespace plimsoll
