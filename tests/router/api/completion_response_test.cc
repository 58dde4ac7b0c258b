#include "router/api/completion_response.h"

#include <gtest/gtest.h>

#include "tests/router/tiny_context.h"

namespace plimsoll {
namespace {

ResponseHead head(bool chat, bool scores = false) {
  return {.chat = chat,
          .id = "id-1",
          .created = 5,
          .model = "a \"ship\"",
          .include_usage = false,
          .scores = scores};
}

TokenScore score(std::string bytes, std::optional<double> logprob) {
  TokenScore score;
  score.bytes = std::move(bytes);
  score.logprob = logprob;
  if (logprob) score.top = {{"top", -0.1}};
  return score;
}

TEST(CompletionResponse, TextHasParallelListsOfScores) {
  ChoiceResult choice{
      .text = "ab", .scores = {score("a", std::nullopt), score("b", -1.5)}, .finish = "length"};
  choice.scores[1].text_offset = 1;
  EXPECT_EQ(whole_response(head(false, true), std::vector{choice}, {2, 3, 1}),
            R"({"id":"id-1","object":"text_completion","created":5,"model":"a \"ship\"",)"
            R"("choices":[{"index":0,"text":"ab","logprobs":{"tokens":["a","b"],)"
            R"("token_logprobs":[null,-1.5],"top_logprobs":[null,{"top":-0.1,"b":-1.5}],)"
            R"("text_offset":[0,1]},"finish_reason":"length"}],)"
            R"("usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,)"
            R"("prompt_tokens_details":{"cached_tokens":1}}})");
}

TEST(CompletionResponse, ChatHasAMessageAndAListOfTokens) {
  const ChoiceResult choice{.text = "\xc3\xa9", .scores = {score("\xc3", -1.0)}, .finish = "stop"};
  const Json body = parsed(whole_response(head(true, true), std::vector{choice}, {}));
  const Json& one = body.find("choices")->as_array()[0];
  EXPECT_EQ(dump_json(*one.find("message")), R"({"role":"assistant","content":"é"})");
  EXPECT_EQ(dump_json(*one.find("logprobs")),
            R"({"content":[{"token":"bytes:\\xc3","logprob":-1.0,"bytes":[195],)"
            R"("top_logprobs":[{"token":"top","logprob":-0.1,"bytes":[116,111,112]}]}]})");
}

TEST(CompletionResponse, LogprobsReadBackToTheSameDouble) {
  const double value = -0.123456789012345678;
  const ChoiceResult choice{.text = "a", .scores = {score("a", value)}, .finish = "stop"};
  const Json body = parsed(whole_response(head(false, true), std::vector{choice}, {}));
  const Json& logprobs = *body.find("choices")->as_array()[0].find("logprobs");
  EXPECT_EQ(logprobs.find("token_logprobs")->as_array()[0].as_double(), value);
}

TEST(CompletionResponse, ChunksAreJsonWhateverTheTextIs) {
  const ChunkWriter writer(head(true));
  const ChoicePiece piece{.text = "a\"b\n\\ é", .scores = {}};
  const std::string chunk = writer.content(1, piece);
  ASSERT_TRUE(chunk.starts_with("data: "));
  ASSERT_TRUE(chunk.ends_with("\n\n"));
  EXPECT_EQ(chunk.find('\n'), chunk.size() - 2);
  const Json json = parsed(std::string_view(chunk).substr(6));
  EXPECT_EQ(json.find("object")->as_string(), "chat.completion.chunk");
  EXPECT_EQ(json.find("model")->as_string(), "a \"ship\"");
  EXPECT_EQ(json.find("usage"), nullptr);
  const Json& choice = json.find("choices")->as_array()[0];
  EXPECT_EQ(choice.find("index")->as_int(), 1);
  EXPECT_EQ(choice.find("delta")->find("content")->as_string(), piece.text);
}

TEST(CompletionResponse, ATextStreamHasNoRole) { EXPECT_EQ(ChunkWriter(head(false)).role(0), ""); }

TEST(CompletionResponse, UsageIsNullUntilTheLastChunk) {
  ResponseHead with_usage = head(false);
  with_usage.include_usage = true;
  const ChunkWriter writer(with_usage);
  const Json finish = parsed(writer.finish(0, "stop").substr(6));
  ASSERT_NE(finish.find("usage"), nullptr);
  EXPECT_TRUE(finish.find("usage")->is_null());
  const Json last = parsed(writer.usage({1, 2}).substr(6));
  EXPECT_TRUE(last.find("choices")->as_array().empty());
  EXPECT_EQ(last.find("usage")->find("total_tokens")->as_int(), 3);
}

}  // namespace
}  // namespace plimsoll
