#include "router/http/message.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

const ResponseFraming kFraming = {.date = "Tue, 15 Nov 1994 08:12:31 GMT"};

TEST(HttpMessage, AResponseHasHeadAndBody) {
  HttpResponse response;
  response.headers = {{"X-Request-Id", "r"}};
  response.body = "{}";
  EXPECT_EQ(response_bytes(response, kFraming),
            "HTTP/1.1 200 OK\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\n"
            "Content-Type: application/json\r\nX-Request-Id: r\r\nContent-Length: 2\r\n\r\n{}");
}

TEST(HttpMessage, HeadHasTheLengthWithoutTheBody) {
  HttpResponse response;
  response.body = "{}";
  const std::string bytes = response_bytes(response, {.head_only = true, .date = "d"});
  EXPECT_NE(bytes.find("Content-Length: 2\r\n"), std::string::npos);
  EXPECT_TRUE(bytes.ends_with("\r\n\r\n"));
}

TEST(HttpMessage, NoContentHasNeitherTypeNorLength) {
  HttpResponse response;
  response.status = 204;
  const std::string bytes = response_bytes(response, kFraming);
  EXPECT_EQ(bytes.find("Content-"), std::string::npos);
}

TEST(HttpMessage, SaysHowTheConnectionGoesOn) {
  EXPECT_NE(response_bytes({}, {.keep_alive = false, .date = ""}).find("Connection: close\r\n"),
            std::string::npos);
  EXPECT_NE(response_bytes({}, {.http_1_0 = true, .date = ""}).find("Connection: keep-alive\r\n"),
            std::string::npos);
  EXPECT_EQ(response_bytes({}, kFraming).find("Connection:"), std::string::npos);
}

TEST(HttpMessage, AHeaderValueNeverEndsItsLine) {
  HttpResponse response;
  response.headers = {{"X", "a\r\nEvil: 1"}};
  EXPECT_EQ(response_bytes(response, kFraming).find("\r\nEvil"), std::string::npos);
}

TEST(HttpMessage, AStreamIsChunked) {
  EXPECT_NE(stream_head_bytes({}, kFraming).find("Transfer-Encoding: chunked\r\n"),
            std::string::npos);
  EXPECT_EQ(chunk_bytes("0123456789abcdef", kFraming), "10\r\n0123456789abcdef\r\n");
  EXPECT_EQ(chunk_bytes("", kFraming), "");
  EXPECT_EQ(end_of_stream_bytes(kFraming), "0\r\n\r\n");
}

TEST(HttpMessage, AStreamToHttp10EndsWithTheConnection) {
  const ResponseFraming framing = {.http_1_0 = true, .date = ""};
  EXPECT_EQ(stream_head_bytes({}, framing).find("chunked"), std::string::npos);
  EXPECT_EQ(chunk_bytes("abc", framing), "abc");
  EXPECT_EQ(end_of_stream_bytes(framing), "");
}

TEST(HttpMessage, EveryStatusHasItsWords) {
  EXPECT_STREQ(status_text(431), "Request Header Fields Too Large");
  EXPECT_STREQ(status_text(799), "Unknown");
}

TEST(HttpMessage, DatesAreInTheHeadersFormat) {
  EXPECT_EQ(http_date(784887151), "Tue, 15 Nov 1994 08:12:31 GMT");
}

TEST(HttpMessage, OnlyShortAndPlainRequestIdsAreRepeated) {
  EXPECT_TRUE(is_harmless_request_id("abc-123_x.y:z/0"));
  EXPECT_FALSE(is_harmless_request_id(""));
  EXPECT_FALSE(is_harmless_request_id("a b"));
  EXPECT_FALSE(is_harmless_request_id("a\r\nb"));
  EXPECT_FALSE(is_harmless_request_id(std::string(129, 'a')));
}

TEST(HttpMessage, DecodesEscapesAndLeavesBrokenOnes) {
  EXPECT_EQ(percent_decode("a%2Fb%2f"), "a/b/");
  EXPECT_EQ(percent_decode("%zz%4"), "%zz%4");
}

}  // namespace
}  // namespace plimsoll
