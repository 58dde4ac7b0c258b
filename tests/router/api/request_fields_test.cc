#include "router/api/request_fields.h"

#include <gtest/gtest.h>

#include "tests/router/tiny_context.h"

namespace plimsoll {
namespace {

RequestFields accepted(std::string_view body, Body kind) {
  RequestFields fields;
  const Refusal refusal = read_fields(parsed(body), kind, fields);
  EXPECT_FALSE(refusal) << body << ": " << (refusal ? refusal->message : "");
  return fields;
}

ApiError refused(std::string_view body, Body kind) {
  RequestFields fields;
  const Refusal refusal = read_fields(parsed(body), kind, fields);
  EXPECT_TRUE(refusal) << body;
  return refusal.value_or(ApiError{});
}

TEST(RequestFields, ReadEveryFieldOfACompletion) {
  const RequestFields fields = accepted(
      R"({"model":"m","prompt":"p","stream":true,"stream_options":{"include_usage":true},
          "max_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":-3,
          "frequency_penalty":0.25,"presence_penalty":-0.5,"stop":["a","b"],"ignore_eos":true,
          "n":2,"echo":true,"logprobs":3,"stop_token_ids":[4]})",
      Body::completion);
  EXPECT_EQ(fields.model, "m");
  EXPECT_EQ(fields.prompt.as_string(), "p");
  EXPECT_TRUE(fields.stream && fields.include_usage && fields.echo && fields.logprobs);
  EXPECT_EQ(fields.max_tokens, 7);
  EXPECT_EQ(fields.seed, static_cast<std::uint64_t>(-3));
  EXPECT_EQ(fields.sampling.temperature, 0.5);
  EXPECT_EQ(fields.sampling.top_k, 40);
  EXPECT_EQ(fields.sampling.presence_penalty, -0.5);
  EXPECT_TRUE(fields.sampling.ignore_eos);
  EXPECT_EQ(fields.sampling.stop_ids, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(fields.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(fields.top_logprobs, 3);
  EXPECT_TRUE(fields.unknown.empty());
}

TEST(RequestFields, NullMeansAbsent) {
  const RequestFields fields =
      accepted(R"({"temperature":null,"stop":null,"seed":null,"stream":null})", Body::chat);
  EXPECT_EQ(fields.sampling.temperature, 1.0);
  EXPECT_FALSE(fields.seed);
}

TEST(RequestFields, AStopMayBeOneString) {
  EXPECT_EQ(accepted(R"({"stop":"x"})", Body::chat).stop, (std::vector<std::string>{"x"}));
}

TEST(RequestFields, TheNewerNameOfMaxTokensWins) {
  EXPECT_EQ(accepted(R"({"max_completion_tokens":9,"max_tokens":5})", Body::chat).max_tokens, 9);
}

TEST(RequestFields, AWholeDoubleIsAnInteger) {
  EXPECT_EQ(accepted(R"({"max_tokens":16.0})", Body::completion).max_tokens, 16);
}

TEST(RequestFields, ADoubleThatIsNotWholeIsNoInteger) {
  EXPECT_EQ(refused(R"({"max_tokens":16.5})", Body::completion).param, "max_tokens");
  EXPECT_EQ(refused(R"({"max_tokens":1e300})", Body::completion).param, "max_tokens");
}

TEST(RequestFields, UnknownOnesAreListed) {
  const RequestFields fields = accepted(R"({"top_q":1,"prompt":"x","zz":{}})", Body::completion);
  EXPECT_EQ(fields.unknown, (std::vector<std::string>{"top_q", "zz"}));
}

TEST(RequestFields, TheListOfUnknownOnesIsBounded) {
  Json body = Json::object();
  for (int i = 0; i < 100; ++i) body.set("unknown_" + std::to_string(i), 1);
  RequestFields fields;
  ASSERT_FALSE(read_fields(body, Body::chat, fields));
  EXPECT_EQ(fields.unknown.size(), kUnknownFieldsMax);
}

TEST(RequestFields, FieldsWithoutEffectAreKnown) {
  EXPECT_TRUE(accepted(R"({"user":"u","store":false,"metadata":{}})", Body::chat).unknown.empty());
}

struct Bad {
  const char* body;
  Body kind;
  const char* param;
};

TEST(RequestFields, WrongTypesAndRangesAreRefusedByName) {
  const Bad cases[] = {
      {R"({"temperature":"hot"})", Body::completion, "temperature"},
      {R"({"temperature":2.1})", Body::chat, "temperature"},
      {R"({"temperature":-0.1})", Body::chat, "temperature"},
      {R"({"top_p":1.5})", Body::chat, "top_p"},
      {R"({"top_k":-2})", Body::chat, "top_k"},
      {R"({"top_k":1.5})", Body::chat, "top_k"},
      {R"({"min_p":2})", Body::chat, "min_p"},
      {R"({"max_tokens":-1})", Body::completion, "max_tokens"},
      {R"({"max_tokens":0})", Body::chat, "max_tokens"},
      {R"({"max_tokens":"5"})", Body::chat, "max_tokens"},
      {R"({"max_completion_tokens":true})", Body::chat, "max_completion_tokens"},
      {R"({"n":0})", Body::chat, "n"},
      {R"({"n":17})", Body::chat, "n"},
      {R"({"stream":1})", Body::chat, "stream"},
      {R"({"stream_options":{"include_usage":"yes"}})", Body::chat, "stream_options.include_usage"},
      {R"({"seed":"x"})", Body::chat, "seed"},
      {R"({"seed":1e30})", Body::chat, "seed"},
      {R"({"stop":[1]})", Body::chat, "stop"},
      {R"({"stop":""})", Body::chat, "stop"},
      {R"({"stop":["a",""]})", Body::chat, "stop"},
      {R"({"frequency_penalty":3})", Body::chat, "frequency_penalty"},
      {R"({"logprobs":true})", Body::completion, "logprobs"},
      {R"({"logprobs":3})", Body::chat, "logprobs"},
      {R"({"logprobs":21})", Body::completion, "logprobs"},
      {R"({"top_logprobs":3})", Body::chat, "top_logprobs"},
      {R"({"logprobs":true,"top_logprobs":21})", Body::chat, "top_logprobs"},
      {R"({"prompt":5})", Body::completion, "prompt"},
      {R"({"prompt":["a"]})", Body::tokenize, "prompt"},
      {R"({"messages":"hi"})", Body::chat, "messages"},
      {R"({"stop_token_ids":[-1]})", Body::chat, "stop_token_ids"},
      {R"({"tool_choice":"required"})", Body::chat, "tool_choice"},
      {R"({"logit_bias":{"5":1}})", Body::chat, "logit_bias"},
      {R"({"response_format":{"type":"json_object"}})", Body::chat, "response_format"},
      {R"({"best_of":2})", Body::completion, "best_of"},
      {R"({"model":4})", Body::detokenize, "model"},
      {R"({"tokens":"x"})", Body::detokenize, "tokens"},
  };
  for (const Bad& one : cases) {
    const ApiError error = refused(one.body, one.kind);
    EXPECT_EQ(error.status, 400) << one.body;
    EXPECT_EQ(error.param, one.param) << one.body;
    EXPECT_NE(error.message.find(one.param), std::string::npos) << error.message;
  }
}

TEST(RequestFields, ARefusalSaysWhatIsWrongWithTheValue) {
  EXPECT_EQ(refused(R"({"seed":18446744073709551615})", Body::chat).message,
            "seed must be an integer from -9223372036854775808 to 9223372036854775807; it is "
            "1.8446744073709552e+19");
  EXPECT_EQ(refused(R"({"stop":["a",1]})", Body::chat).message,
            "stop must be a string or a list of strings; item 1 of it is of type integer");
}

TEST(RequestFields, OnlyAnObjectIsABody) {
  EXPECT_EQ(refused("[1]", Body::chat).status, 400);
  EXPECT_EQ(refused("null", Body::chat).status, 400);
}

TEST(RequestFields, TheLastOfTwoEqualNamesIsTheOneThatIsChecked) {
  RequestFields fields;
  const auto body = parse_json(R"({"temperature":0.5,"temperature":"hot"})");
  if (body) {
    EXPECT_TRUE(read_fields(*body, Body::chat, fields));
  }
}

}  // namespace
}  // namespace plimsoll
