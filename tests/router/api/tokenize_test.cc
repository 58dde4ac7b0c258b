#include "router/api/tokenize.h"

#include <gtest/gtest.h>

#include "tests/router/tiny_context.h"
#include "tests/shared/tokenizer/tiny_vocabulary.h"

namespace plimsoll {
namespace {

class Tokenize : public ::testing::Test {
 protected:
  HttpResponse ask(std::string body) {
    return tokenize(model_, json_request("/tokenize", std::move(body)));
  }
  ModelContext model_ = tiny_context();
};

TEST_F(Tokenize, GivesIdsCountAndContext) {
  EXPECT_EQ(ask(R"({"prompt":"xy"})").body, R"({"count":2,"max_model_len":64,"tokens":[123,124]})");
}

TEST_F(Tokenize, TakesContentAsLlamaServerDoes) {
  EXPECT_EQ(ask(R"({"content":"xy"})").body, ask(R"({"prompt":"xy"})").body);
}

TEST_F(Tokenize, GivesPiecesWhereAskedFor) {
  const Json body = parsed(ask(R"({"prompt":"xé","with_pieces":true})").body);
  const Json::Array& tokens = body.find("tokens")->as_array();
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(dump_json(tokens[0]), R"({"id":123,"piece":"x"})");
  EXPECT_EQ(dump_json(*tokens[1].find("piece")), "[195]");
}

TEST_F(Tokenize, TakesMessagesThroughTheTemplate) {
  const Json body = parsed(ask(R"({"messages":[{"role":"user","content":"x"}]})").body);
  EXPECT_EQ(body.find("tokens")->as_array().front().as_int(), 1);
}

TEST_F(Tokenize, AnEmptyTextHasNoTokens) {
  EXPECT_EQ(parsed(ask(R"({"prompt":""})").body).find("count")->as_int(), 0);
}

TEST_F(Tokenize, ATextWithoutTokensGetsNoneInTheirPlace) {
  TinyVocabulary tiny;
  TokenizerData data = tiny.data();
  data.bos = tiny.add("<s>", TokenType::control);
  data.tokens = tiny.tokens;
  data.types = tiny.types;
  data.add_bos = false;
  auto tokenizer = Tokenizer::from_data(data);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  model_.tokenizer = std::move(*tokenizer);
  EXPECT_EQ(parsed(ask(R"({"prompt":"\u0004"})").body).find("count")->as_int(), 0);
  EXPECT_EQ(parsed(ask(R"({"prompt":"a\u0004"})").body).find("count")->as_int(), 1);
}

TEST_F(Tokenize, RefusesWhatItCannotRead) {
  EXPECT_EQ(ask("{").status, 400);
  EXPECT_EQ(ask("{}").status, 400);
  EXPECT_EQ(ask(R"({"prompt":5})").status, 400);
  EXPECT_EQ(ask(R"({"prompt":"x","model":"boat"})").status, 404);
}

}  // namespace
}  // namespace plimsoll
