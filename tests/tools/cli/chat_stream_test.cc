#include "tools/cli/chat_stream.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

const TimePoint kBegin{};

std::string delta(const std::string& text) {
  return R"({"choices":[{"delta":{"content":")" + text + R"("},"finish_reason":null}]})";
}

TEST(ChatStream, PutsTheAnswerTogetherAndMeasuresIt) {
  ChatStream stream(kBegin);
  EXPECT_EQ(*stream.event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})",
                          kBegin + milliseconds(100)),
            "");
  EXPECT_EQ(*stream.event(delta("A "), kBegin + milliseconds(500)), "A ");
  EXPECT_EQ(*stream.event(delta("line"), kBegin + milliseconds(1500)), "line");
  EXPECT_TRUE(stream.event(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})",
                           kBegin + milliseconds(1500)));
  EXPECT_TRUE(stream.event(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":11}})",
                           kBegin + milliseconds(1600)));
  EXPECT_FALSE(stream.is_done());
  EXPECT_TRUE(stream.event("[DONE]", kBegin + milliseconds(1700)));
  EXPECT_TRUE(stream.is_done());
  EXPECT_EQ(stream.answer(), "A line");
  EXPECT_EQ(stream.finish_reason(), "stop");
  EXPECT_EQ(stream.prompt_tokens(), 7);
  EXPECT_EQ(stream.summary(), "[11 tokens, 10.0 tokens/s, the first after 0.50 s]");
}

TEST(ChatStream, AnErrorInTheMiddleIsTheServersWords) {
  ChatStream stream(kBegin);
  const Result<std::string> text = stream.event(R"({"error":{"message":"worker died"}})", kBegin);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message, "worker died");
  EXPECT_FALSE(stream.event("{", kBegin));
}

TEST(ChatStream, ARequestCarriesTheConversation) {
  const Json request =
      chat_request({{.role = "user", .content = "a \"q\""}}, {.max_tokens = 5, .temperature = 0.5});
  EXPECT_EQ(dump_json(request),
            R"({"messages":[{"role":"user","content":"a \"q\""}],"stream":true,)"
            R"("stream_options":{"include_usage":true},"max_tokens":5,"temperature":0.5})");
  EXPECT_EQ(chat_request({}, {}).find("max_tokens"), nullptr);
  EXPECT_EQ(chat_request({}, {}).find("temperature"), nullptr);
}

TEST(ChatStream, AnErrorThatIsNoJsonIsShownAsItIs) {
  EXPECT_EQ(chat_error("Bad Gateway"), "Bad Gateway");
  EXPECT_EQ(chat_error(R"({"error":{"message":"too long"}})"), "too long");
}

}  // namespace
}  // namespace plimsoll
