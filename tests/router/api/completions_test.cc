#include "router/api/completions.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/router/tiny_context.h"

namespace plimsoll {
namespace {

class Completions : public ::testing::Test {
 protected:
  Refusal plan(std::string body, bool chat = false) {
    const HttpRequest request = json_request("/", std::move(body));
    plan_ = {};
    return plan_completion(model_,
                           {.request = &request,
                            .chat = chat,
                            .id = "id-1",
                            .created = 5,
                            .random_seed = 1000,
                            .admit =
                                [this](std::int64_t choices) {
                                  asked_ = choices;
                                  return choices <= room_ ? Status()
                                                          : unavailable("the queue is full");
                                }},
                           plan_);
  }
  ModelContext model_ = tiny_context();
  CompletionPlan plan_;
  std::int64_t room_ = 1000;
  std::int64_t asked_ = 0;  // choices
};

TEST_F(Completions, OneRequestAChoice) {
  ASSERT_FALSE(plan(R"({"prompt":["xy","z"],"n":2,"max_tokens":3,"seed":7})"));
  ASSERT_EQ(plan_.generates.size(), 4U);
  EXPECT_EQ(plan_.generates[1].prompt, byte_ids("xy"));
  EXPECT_EQ(plan_.generates[2].prompt, byte_ids("z"));
  EXPECT_EQ(plan_.generates[0].sampling.seed, 7U);
  EXPECT_EQ(plan_.generates[1].sampling.seed, 8U);
  EXPECT_EQ(plan_.generates[3].sampling.max_tokens, 3);
}

TEST_F(Completions, ARandomSeedServesWhereNoneCame) {
  ASSERT_FALSE(plan(R"({"prompt":"x"})"));
  EXPECT_EQ(plan_.generates[0].sampling.seed, 1000U);
}

TEST_F(Completions, EosEndsAChoiceUnlessItIsIgnored) {
  ASSERT_FALSE(plan(R"({"prompt":"x","stop_token_ids":[9]})"));
  EXPECT_EQ(std::ranges::count(plan_.generates[0].sampling.stop_ids, kTinyEos), 1);
  EXPECT_EQ(std::ranges::count(plan_.generates[0].sampling.stop_ids, 9), 1);
  ASSERT_FALSE(plan(R"({"prompt":"x","ignore_eos":true,"stop_token_ids":[9]})"));
  EXPECT_EQ(plan_.generates[0].sampling.stop_ids, (std::vector<std::int64_t>{9}));
}

TEST_F(Completions, LogprobsAreAskedForAsTheClientDid) {
  ASSERT_FALSE(plan(R"({"prompt":"x"})"));
  EXPECT_EQ(plan_.generates[0].sampling.logprobs, -1);
  ASSERT_FALSE(plan(R"({"prompt":"x","logprobs":0})"));
  EXPECT_EQ(plan_.generates[0].sampling.logprobs, 0);
  EXPECT_FALSE(plan_.generates[0].sampling.prompt_logprobs);
  ASSERT_FALSE(plan(R"({"prompt":"x","logprobs":2,"echo":true,"max_tokens":0})"));
  EXPECT_TRUE(plan_.generates[0].sampling.prompt_logprobs);
  EXPECT_EQ(plan_.generates[0].sampling.max_tokens, 0);
  ASSERT_FALSE(plan(
      R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":4})", true));
  EXPECT_EQ(plan_.generates[0].sampling.logprobs, 4);
}

TEST_F(Completions, UsageIsOnlyAStreamsOption) {
  ASSERT_FALSE(plan(R"({"prompt":"x","stream_options":{"include_usage":true}})"));
  EXPECT_FALSE(plan_.job.head.include_usage);
  ASSERT_FALSE(plan(R"({"prompt":"x","stream":true,"stream_options":{"include_usage":true}})"));
  EXPECT_TRUE(plan_.job.head.include_usage);
}

TEST_F(Completions, RefusalsKeepTheNamesOfUnknownFields) {
  EXPECT_TRUE(plan(R"({"max_tokns":5})"));
  EXPECT_EQ(plan_.unknown_fields, (std::vector<std::string>{"max_tokns"}));
}

TEST_F(Completions, ABatchIsBounded) {
  std::string prompts = "\"x\"";
  for (int i = 1; i < 100; ++i) prompts += ",\"x\"";
  const Refusal refusal = plan("{\"n\":16,\"prompt\":[" + prompts + "]}");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->param, "n");
}

// A prompt over the context is found by its tokens: whatever is refused before it needed none.
TEST_F(Completions, WhatIsNotAdmittedIsNotTokenized) {
  const std::string ids = [] {
    std::string list = "123";
    for (int i = 0; i < 100; ++i) list += ",123";
    return "[" + list + "]";
  }();
  room_ = 3;
  EXPECT_EQ(plan("{\"n\":2,\"prompt\":[\"x\"," + ids + "]}")->status, 503);
  EXPECT_EQ(asked_, 4);
  EXPECT_EQ(plan(R"({"n":4,"messages":[{"role":"user","content":5}]})", true)->status, 503);
  room_ = 4;
  EXPECT_EQ(plan("{\"n\":2,\"prompt\":[\"x\"," + ids + "]}")->status, 400);
  std::string prompts = ids;
  for (int i = 1; i < 100; ++i) prompts += ",\"x\"";
  EXPECT_EQ(plan("{\"n\":16,\"prompt\":[" + prompts + "]}")->param, "n");
}

TEST_F(Completions, RefusesWhatCannotBeServed) {
  EXPECT_EQ(plan(R"({"prompt":"x","model":"boat"})")->status, 404);
  EXPECT_EQ(plan("{")->status, 400);
  EXPECT_EQ(plan(R"({"prompt":"x","max_tokens":1000000})")->status, 400);
  EXPECT_EQ(plan(R"({"prompt":"x","stop_token_ids":[99999999]})")->param, "stop_token_ids");
}

}  // namespace
}  // namespace plimsoll
