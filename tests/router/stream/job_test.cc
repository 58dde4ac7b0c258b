#include "router/stream/job.h"

#include <gtest/gtest.h>

#include "shared/base/text.h"
#include "tests/router/tiny_context.h"

namespace plimsoll {
namespace {

class JobTest : public ::testing::Test {
 protected:
  JobSetup setup(bool chat, bool stream, std::int64_t n = 1) {
    JobSetup setup;
    setup.exchange = 7;
    setup.stream = stream;
    setup.n = n;
    setup.head = {.chat = chat,
                  .id = "id-1",
                  .created = 5,
                  .model = "ship",
                  .include_usage = stream,
                  .scores = false};
    setup.prompts = {{"ab", byte_ids("ab")}};
    return setup;
  }
  static TokenEvent text(std::string_view text, std::string finish = "") {
    TokenEvent event;
    event.tokens = byte_ids(text);
    event.finish = std::move(finish);
    return event;
  }
  // The JSON of each `data:` line; [DONE] as a string.
  static std::vector<Json> events(std::string_view bytes) {
    std::vector<Json> out;
    for (std::string_view line : split(bytes, '\n')) {
      if (!line.starts_with("data: ")) continue;
      line.remove_prefix(6);
      out.push_back(line == "[DONE]" ? Json("[DONE]") : parsed(line));
    }
    return out;
  }
  Tokenizer tokenizer_ = tiny_tokenizer();
};

const Json& first_choice(const Json& event) { return event.find("choices")->as_array().front(); }

TEST_F(JobTest, AChatStreamHasRoleContentFinishUsageAndDoneInThisOrder) {
  Job job(setup(true, true), tokenizer_);
  job.push(0, text("hi"));
  std::vector<Json> got = events(job.take_events());
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(first_choice(got[0]).find("delta")->find("role")->as_string(), "assistant");
  EXPECT_EQ(first_choice(got[1]).find("delta")->find("content")->as_string(), "hi");
  EXPECT_TRUE(got[1].find("usage")->is_null());
  job.push(0, text("", "length"));
  got = events(job.take_events());
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(first_choice(got[0]).find("finish_reason")->as_string(), "length");
  EXPECT_TRUE(got[1].find("choices")->as_array().empty());
  EXPECT_EQ(dump_json(*got[1].find("usage")),
            R"({"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,)"
            R"("prompt_tokens_details":{"cached_tokens":0}})");
  EXPECT_EQ(got[2].as_string(), "[DONE]");
}

TEST_F(JobTest, TakesEventsOnce) {
  Job job(setup(false, true), tokenizer_);
  job.push(0, text("hi"));
  EXPECT_FALSE(job.take_events().empty());
  EXPECT_TRUE(job.take_events().empty());
}

TEST_F(JobTest, IsDoneWhenTheLastChoiceIs) {
  Job job(setup(false, false, 2), tokenizer_);
  job.push(1, text("b", "length"));
  EXPECT_FALSE(job.done());
  job.push(0, text("a", "stop"));
  ASSERT_TRUE(job.done());
  const Json body = parsed(job.body());
  const Json::Array& choices = body.find("choices")->as_array();
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_EQ(choices[0].find("text")->as_string(), "a");
  EXPECT_EQ(choices[1].find("text")->as_string(), "b");
  EXPECT_EQ(choices[1].find("finish_reason")->as_string(), "length");
}

TEST_F(JobTest, ChoicesRunThroughPromptsThenSamples) {
  JobSetup batch = setup(false, false, 2);
  batch.prompts.push_back({"c", byte_ids("c")});
  Job job(std::move(batch), tokenizer_);
  EXPECT_EQ(job.choices(), 4U);
  EXPECT_EQ(job.prompt_of(1).text, "ab");
  EXPECT_EQ(job.prompt_of(2).text, "c");
  EXPECT_EQ(job.usage().prompt_tokens, 3);
}

TEST_F(JobTest, CachedTokensAreThoseOfEachPromptsFirstChoiceAsFirstTold) {
  JobSetup batch = setup(false, false, 2);
  batch.prompts.push_back({"c", byte_ids("c")});
  Job job(std::move(batch), tokenizer_);
  const auto tell = [&](std::size_t choice, std::int64_t cached) {
    TokenEvent event = text("x");
    event.cached_tokens = cached;
    job.push(choice, event);
  };
  tell(1, 32);  // the second sample of a prompt that counts once
  EXPECT_EQ(job.usage().cached_tokens, 0);
  tell(0, 32);
  tell(0, 64);  // another leader computed the prompt again
  tell(2, -1);
  EXPECT_EQ(job.usage().cached_tokens, 32);
  tell(2, 96);
  EXPECT_EQ(job.cached_tokens(), 128);
}

TEST_F(JobTest, AnEarlyHeadIsNotSaidAgain) {
  Job job(setup(true, true), tokenizer_);
  job.open_early();
  EXPECT_EQ(events(job.take_events()).size(), 1U);
  job.push(0, text("hi"));
  const std::vector<Json> got = events(job.take_events());
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(first_choice(got[0]).find("delta")->find("content")->as_string(), "hi");
}

}  // namespace
}  // namespace plimsoll
