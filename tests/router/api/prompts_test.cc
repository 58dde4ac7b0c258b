#include "router/api/prompts.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/router/tiny_context.h"

namespace plimsoll {
namespace {

class Prompts : public ::testing::Test {
 protected:
  Refusal completion(std::string_view json) {
    prompts_.clear();
    RequestFields fields;
    fields.prompt = parsed(json);
    return completion_prompts(fields, model_.tokenizer, model_.limits, prompts_);
  }
  Refusal chat(std::string_view messages) {
    RequestFields fields;
    fields.messages = parsed(messages);
    prompt_ = {};
    return chat_prompt(fields, model_.tokenizer, model_.template_or_null(), model_.limits, prompt_);
  }
  ModelContext model_ = tiny_context();
  std::vector<Prompt> prompts_;
  Prompt prompt_;
};

TEST_F(Prompts, TakesAStringAndListsOfStringsAndIds) {
  ASSERT_FALSE(completion(R"("xyz")"));
  ASSERT_EQ(prompts_.size(), 1U);
  EXPECT_EQ(prompts_[0].ids, byte_ids("xyz"));
  ASSERT_FALSE(completion(R"(["xy","zx"])"));
  ASSERT_EQ(prompts_.size(), 2U);
  EXPECT_EQ(prompts_[1].text, "zx");
  ASSERT_FALSE(completion("[123, 124]"));
  ASSERT_EQ(prompts_.size(), 1U);
  EXPECT_EQ(prompts_[0].ids, (std::vector<std::int64_t>{123, 124}));
  EXPECT_EQ(prompts_[0].text, "xy");
  ASSERT_FALSE(completion(R"([[123],"z",[124,125]])"));
  ASSERT_EQ(prompts_.size(), 3U);
}

TEST_F(Prompts, AnEmptyPromptBecomesTheBeginning) {
  ASSERT_FALSE(completion(R"("")"));
  EXPECT_EQ(prompts_[0].ids, (std::vector<std::int64_t>{1}));
}

TEST_F(Prompts, ControlTokensInACompletionMeanThemselves) {
  ASSERT_FALSE(completion(R"("x<|im_end|>")"));
  EXPECT_EQ(prompts_[0].ids.back(), kTinyEos);
}

TEST_F(Prompts, WrongPromptsAreRefused) {
  for (const char* json : {"null", "[]", "[-1]", "[999999999]", "[1.5]", R"(["a",5])",
                           R"([{"a":1}])", R"([[1,"a"]])", "[true]"}) {
    const Refusal refusal = completion(json);
    ASSERT_TRUE(refusal) << json;
    EXPECT_EQ(refusal->status, 400);
    EXPECT_EQ(refusal->param, "prompt");
  }
}

TEST_F(Prompts, TextThatCannotFitIsRefusedBeforeItIsTokenized) {
  const Refusal refusal = completion("\"" + std::string(1'000'000, 'x') + "\"");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, "context_length_exceeded");
}

TEST_F(Prompts, TooManyPromptsAreRefused) {
  std::string json = "[\"a\"";
  for (int i = 0; i < 300; ++i) json += ",\"a\"";
  EXPECT_TRUE(completion(json + "]"));
}

TEST_F(Prompts, ABatchsTextIsBoundedInAll) {
  const std::string half(3 << 20, 'x');
  const Refusal both = completion("[\"" + half + "\",\"" + half + "\"]");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->param, "prompt");
  EXPECT_NE(both->message.find("4 MiB"), std::string::npos) << both->message;
  // One prompt has the limit of the context alone.
  const Refusal one = completion("[\"" + half + half + "\"]");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->code, "context_length_exceeded");
}

TEST_F(Prompts, AChatGoesThroughTheTemplate) {
  ASSERT_FALSE(chat(R"([{"role":"user","content":"xyz"}])"));
  EXPECT_EQ(prompt_.text, "<|im_start|>user\nxyz<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prompt_.ids.front(), 1);
  EXPECT_EQ(std::ranges::count(prompt_.ids, 1), 2);
}

TEST_F(Prompts, NamesOfControlTokensInAMessageStayText) {
  ASSERT_FALSE(chat(R"([{"role":"user","content":"<|im_end|>"}])"));
  EXPECT_EQ(std::ranges::count(prompt_.ids, kTinyEos), 1);
}

TEST_F(Prompts, ContentMayBeTextParts) {
  ASSERT_FALSE(chat(
      R"([{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}])"));
  EXPECT_NE(prompt_.text.find("x\ny"), std::string::npos);
}

TEST_F(Prompts, ArgumentsOfToolCallsAreBoundedInAll) {
  const std::string call =
      R"({"function":{"name":"f","arguments":"[)" + std::string(3 << 20, ' ') + R"(]"}})";
  const auto message = [](const std::string& calls) {
    return R"([{"role":"assistant","content":"x","tool_calls":[)" + calls + "]}]";
  };
  EXPECT_FALSE(chat(message(call)));
  const Refusal refusal = chat(message(call + "," + call));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->param, "messages");
}

TEST_F(Prompts, WrongMessagesAreRefusedByPlace) {
  struct Case {
    const char* messages;
    const char* param;
  };
  const Case cases[] = {
      {"[]", "messages"},
      {"null", "messages"},
      {R"(["hi"])", "messages[0]"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":"king","content":"x"}])", "messages[0].role"},
      {R"([{"role":"user","content":"x"},{"role":"user"}])", "messages[1].content"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"user","content":[{"type":"image_url"}]}])", "messages[0].content"},
      {R"([{"role":"user","content":[5]}])", "messages[0].content"},
  };
  for (const Case& one : cases) {
    const Refusal refusal = chat(one.messages);
    ASSERT_TRUE(refusal) << one.messages;
    EXPECT_EQ(refusal->param, one.param) << one.messages;
  }
}

TEST_F(Prompts, WithoutATemplateChatIsRefused) {
  model_.chat_template.reset();
  const Refusal refusal = chat(R"([{"role":"user","content":"x"}])");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, "no_chat_template");
}

TEST_F(Prompts, DefaultsOfMaxTokensAre16OrTheRestOfTheContext) {
  TokenBudget budget;
  ASSERT_FALSE(token_budget({}, false, 10, model_.limits, budget));
  EXPECT_EQ(budget.max_tokens, 16);
  ASSERT_FALSE(token_budget({}, false, 60, model_.limits, budget));
  EXPECT_EQ(budget.max_tokens, 4);
  ASSERT_FALSE(token_budget({}, true, 10, model_.limits, budget));
  EXPECT_EQ(budget.max_tokens, 54);
}

TEST_F(Prompts, MoreThanTheContextIsRefusedWithTheNumbers) {
  RequestFields fields;
  fields.max_tokens = 60;
  TokenBudget budget;
  const Refusal refusal = token_budget(fields, false, 10, model_.limits, budget);
  ASSERT_TRUE(refusal);
  for (const char* number : {"64", "10", "60", "70"}) {
    EXPECT_NE(refusal->message.find(number), std::string::npos) << refusal->message;
  }
  EXPECT_EQ(refusal->param, "max_tokens");
}

TEST_F(Prompts, AFullContextCanStillBeScored) {
  RequestFields fields;
  fields.max_tokens = 0;
  TokenBudget budget;
  EXPECT_FALSE(token_budget(fields, false, 64, model_.limits, budget));
  EXPECT_TRUE(token_budget({}, false, 64, model_.limits, budget));
}

}  // namespace
}  // namespace plimsoll
