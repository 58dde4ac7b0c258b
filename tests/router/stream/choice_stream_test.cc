#include "router/stream/choice_stream.h"

#include <gtest/gtest.h>

#include "tests/router/tiny_context.h"

namespace plimsoll {
namespace {

TokenEvent event_of(std::vector<std::int64_t> tokens, std::string finish = "") {
  TokenEvent event;
  event.tokens = std::move(tokens);
  event.finish = std::move(finish);
  return event;
}

TokenLogprob logprob_of(std::int64_t id, double value) {
  return {.id = id, .logprob = value, .top_ids = {id}, .top_logprobs = {value}};
}

// Each token's log-probability is minus its index in the event, minus a half.
TokenEvent scored(std::string_view text, std::string finish = "") {
  TokenEvent event = event_of(byte_ids(text), std::move(finish));
  for (std::size_t i = 0; i < event.tokens.size(); ++i) {
    event.logprobs.push_back(logprob_of(event.tokens[i], -0.5 - static_cast<double>(i)));
  }
  return event;
}

class ChoiceStreamTest : public ::testing::Test {
 protected:
  ChoiceStream stream(ChoiceSettings settings) { return {tokenizer_, std::move(settings)}; }
  ChoiceStream with_stop(std::string stop, bool scores = false) {
    ChoiceSettings settings;
    settings.stop = {std::move(stop)};
    settings.scores = scores;
    return stream(std::move(settings));
  }
  ChoiceStream with_echo(const std::string& prompt, bool scores) {
    ChoiceSettings settings;
    settings.scores = scores;
    settings.echo = true;
    settings.prompt_text = prompt;
    settings.prompt = byte_ids(prompt);
    return stream(std::move(settings));
  }
  Tokenizer tokenizer_ = tiny_tokenizer();
};

TEST_F(ChoiceStreamTest, NeverSplitsACharacter) {
  ChoiceStream choice = stream(ChoiceSettings());
  EXPECT_EQ(choice.push(event_of(byte_ids("a\xc3"))).text, "a");
  EXPECT_EQ(choice.push(event_of(byte_ids("\xa9"))).text, "é");
}

TEST_F(ChoiceStreamTest, ACharacterThatNeverBecomesCompleteIsReplacedAtTheEnd) {
  ChoiceStream choice = stream(ChoiceSettings());
  EXPECT_EQ(choice.push(event_of(byte_ids("a\xc3"), "length")).text, "a\xef\xbf\xbd");
  EXPECT_EQ(choice.finish(), "length");
}

TEST_F(ChoiceStreamTest, AStopStringOverTokenBordersEndsItEarly) {
  ChoiceStream choice = with_stop("END");
  EXPECT_EQ(choice.push(event_of(byte_ids("abE"))).text, "ab");
  EXPECT_EQ(choice.push(event_of(byte_ids("N"))).text, "");
  EXPECT_FALSE(choice.stopped_early());
  EXPECT_EQ(choice.push(event_of(byte_ids("Dxyz"))).text, "");
  EXPECT_EQ(choice.finish(), "stop");
  EXPECT_TRUE(choice.stopped_early());
  EXPECT_EQ(choice.completion_tokens(), 5);
}

TEST_F(ChoiceStreamTest, AStopStringInTheLastEventNeedsNoCancel) {
  ChoiceStream choice = with_stop("D");
  choice.push(event_of(byte_ids("abD"), "length"));
  EXPECT_EQ(choice.finish(), "stop");
  EXPECT_FALSE(choice.stopped_early());
}

TEST_F(ChoiceStreamTest, HeldBackTextComesOutAtTheEnd) {
  ChoiceStream choice = with_stop("END");
  EXPECT_EQ(choice.push(event_of(byte_ids("EN"))).text, "");
  EXPECT_EQ(choice.push(event_of({}, "length")).text, "EN");
}

TEST_F(ChoiceStreamTest, NothingComesAfterTheEnd) {
  ChoiceStream choice = stream(ChoiceSettings());
  choice.push(event_of(byte_ids("a"), "length"));
  EXPECT_EQ(choice.push(event_of(byte_ids("b"))).text, "");
  EXPECT_EQ(choice.completion_tokens(), 1);
}

TEST_F(ChoiceStreamTest, TheTokenThatEndsItCountsButHasNoText) {
  ChoiceSettings settings;
  settings.stop_ids = {kTinyEos, byte_ids("!").front()};
  ChoiceStream choice = stream(std::move(settings));
  std::vector<std::int64_t> ids = byte_ids("a!");
  EXPECT_EQ(choice.push(event_of(ids, "stop")).text, "a");
  EXPECT_EQ(choice.completion_tokens(), 2);
}

TEST_F(ChoiceStreamTest, ScoresComeWithTheirText) {
  ChoiceStream choice = with_stop("bc", true);
  ChoicePiece first = choice.push(scored("ab"));
  EXPECT_EQ(first.text, "a");
  ASSERT_EQ(first.scores.size(), 1U);
  EXPECT_EQ(first.scores[0].bytes, "a");
  EXPECT_EQ(first.scores[0].logprob, -0.5);
  const ChoicePiece second = choice.push(scored("x"));
  EXPECT_EQ(second.text, "bx");
  ASSERT_EQ(second.scores.size(), 2U);
  EXPECT_EQ(second.scores[1].text_offset, 2);
}

TEST_F(ChoiceStreamTest, ScoresOfAStopStringAreLeftOut) {
  ChoiceStream choice = with_stop("bc", true);
  const ChoicePiece piece = choice.push(scored("abcd"));
  EXPECT_EQ(piece.text, "a");
  EXPECT_EQ(piece.scores.size(), 1U);
}

TEST_F(ChoiceStreamTest, EchoWithScoresWaitsForAllOfThePrompt) {
  const std::vector<std::int64_t> prompt = byte_ids("abc");
  ChoiceStream choice = with_echo("abc", true);
  TokenEvent event;
  event.prompt_logprobs = {logprob_of(prompt[1], -1)};
  EXPECT_EQ(choice.push(event).text, "");
  event.prompt_logprobs = {logprob_of(prompt[2], -2)};
  event.finish = "length";
  const ChoicePiece piece = choice.push(event);
  EXPECT_EQ(piece.text, "abc");
  ASSERT_EQ(piece.scores.size(), 3U);
  EXPECT_FALSE(piece.scores[0].logprob);
  EXPECT_EQ(piece.scores[1].logprob, -1.0);
  EXPECT_EQ(piece.scores[2].logprob, -2.0);
  EXPECT_EQ(piece.scores[2].text_offset, 2);
}

TEST_F(ChoiceStreamTest, EchoStandsBeforeTheFirstToken) {
  ChoiceStream choice = with_echo("ab", false);
  EXPECT_EQ(choice.push(event_of(byte_ids("c"))).text, "abc");
}

TEST_F(ChoiceStreamTest, CountsCharactersNotBytes) {
  EXPECT_EQ(count_characters("aé€😀"), 4);
  EXPECT_EQ(count_characters(""), 0);
}

}  // namespace
}  // namespace plimsoll
