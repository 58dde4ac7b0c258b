#include "shared/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "shared/base/clock.h"
#include "shared/base/json.h"
#include "shared/base/text.h"
#include "tests/shared/tokenizer/tiny_vocabulary.h"
#include "tests/support/test_data.h"
#include "tools/tiny_model/tiny_model.h"

namespace plimsoll {
namespace {

using Ids = std::vector<TokenId>;

std::filesystem::path vocab_path(std::string_view pre) {
  return pre == "smollm" ? default_model_path() : test_vocab(pre);
}

Tokenizer open_tokenizer(std::string_view pre) {
  const auto file = GgufFile::open(vocab_path(pre));
  EXPECT_TRUE(file) << file.error().message;
  auto tokenizer = Tokenizer::from_gguf(*file);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

std::vector<Json> golden_lines(const std::string& name) {
  std::vector<Json> lines;
  const std::string text = read_test_file(golden_path("tokenizer/" + name + ".jsonl"));
  for (const std::string_view line : split(text, '\n')) {
    if (!line.empty()) lines.push_back(*parse_json(line));
  }
  return lines;
}

Ids ids_of(const Json& array) {
  Ids ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

// Where sanitizers slow everything down, a tenth shows a quadratic as well.
constexpr std::size_t kLongBytes = (std::size_t{192} << 10) / (kIsSanitizerBuild ? 10 : 1);

class TokenizerIds : public ::testing::TestWithParam<const char*> {};
// Those whose tokens spell exactly the text: SPM puts a space before it.
class TokenizerGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerIds, AreThoseOfTheReference) {
  SKIP_WITHOUT(vocab_path(GetParam()));
  Tokenizer tokenizer = open_tokenizer(GetParam());
  const auto strings = golden_lines("strings");
  const auto expected = golden_lines(GetParam());
  ASSERT_GE(strings.size(), 2000U);
  ASSERT_EQ(strings.size(), expected.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < strings.size() && wrong < 10; i += kBulkDivisor) {
    const Ids ids = tokenizer.encode(strings[i].as_string(), false, false);
    EXPECT_EQ(ids, ids_of(expected[i])) << "line " << i + 1 << ": " << dump_json(strings[i]);
    if (ids != ids_of(expected[i])) ++wrong;
  }
}

TEST_P(TokenizerIds, AreThoseOfTheReferenceForTrustedText) {
  SKIP_WITHOUT(vocab_path(GetParam()));
  Tokenizer tokenizer = open_tokenizer(GetParam());
  const auto cases = golden_lines(std::string(GetParam()) + "-trusted");
  ASSERT_GE(cases.size(), 50U);
  for (const Json& line : cases) {
    const std::string& text = line.as_array()[0].as_string();
    EXPECT_EQ(tokenizer.encode(text, true, false), ids_of(line.as_array()[1])) << text;
  }
}

TEST_P(TokenizerGolden, DecodesWhatItEncoded) {
  SKIP_WITHOUT(vocab_path(GetParam()));
  Tokenizer tokenizer = open_tokenizer(GetParam());
  const std::vector<Json> strings = golden_lines("strings");
  for (std::size_t i = 0; i < strings.size(); i += kBulkDivisor) {
    const std::string& text = strings[i].as_string();
    const Ids ids = tokenizer.encode(text, false, false);
    std::size_t bytes = 0;
    for (const TokenId id : ids) {
      ASSERT_FALSE(tokenizer.is_control(id)) << text;
      bytes += tokenizer.token_bytes(id)->size();
    }
    // A vocabulary may lack tokens for bytes; then text gets lost, as the reference loses it.
    if (bytes == text.size()) {
      EXPECT_EQ(tokenizer.decode(ids, true), text);
    } else {
      EXPECT_STREQ(GetParam(), "smollm") << text;
    }
  }
}

TEST_P(TokenizerIds, ALongRunOfAnythingTakesNoQuadraticTime) {
  SKIP_WITHOUT(vocab_path(GetParam()));
  Tokenizer tokenizer = open_tokenizer(GetParam());
  std::string once;
  for (const Json& line : golden_lines("strings")) once += line.as_string();
  std::vector<std::string> texts;
  for (const std::string& part :
       {once, std::string("abcdefghijklmnopqrstuvwxyz"), std::string("的一是在不了有和人"),
        std::string(" "), std::string("a"), std::string("<"), std::string("\n"),
        std::string("\x80")}) {
    std::string text;
    text.reserve(kLongBytes + part.size());
    while (text.size() < kLongBytes) text += part;
    texts.push_back(std::move(text));
  }
  for (const std::string& text : texts) {
    const TimePoint start = now();
    EXPECT_FALSE(tokenizer.encode(text, true, false).empty());
    EXPECT_LT(to_seconds(now() - start), 10.0) << text.substr(0, 8);  // release: under 0.1 s
  }
}

std::string name_of(const testing::TestParamInfo<const char*>& tested) {
  std::string name = tested.param;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerIds,
                         ::testing::Values("smollm", "gpt-2", "llama-bpe", "qwen2", "llama-spm"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerGolden,
                         ::testing::Values("smollm", "gpt-2", "llama-bpe", "qwen2"), name_of);

TEST(Tokenizer, KnowsTheDefaultModelsTokens) {
  SKIP_WITHOUT(default_model_path());
  Tokenizer tokenizer = open_tokenizer("smollm");
  EXPECT_EQ(tokenizer.vocab_size(), 49152);
  EXPECT_EQ(tokenizer.bos(), 1);
  EXPECT_EQ(tokenizer.eos(), 2);
  EXPECT_FALSE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.stop_ids(), (Ids{0, 2}));
  EXPECT_EQ(tokenizer.token_bytes(2), "<|im_end|>");
  EXPECT_EQ(tokenizer.token_bytes(49152), std::nullopt);
  EXPECT_EQ(tokenizer.token_bytes(-1), std::nullopt);
  EXPECT_EQ(tokenizer.encode("Hello, world!", false, true), (Ids{19556, 28, 905, 17}));
  EXPECT_EQ(tokenizer.decode({1, 19556, 28, 905, 17, 2}, false), "Hello, world!");
  EXPECT_EQ(tokenizer.decode({1, 19556, 2}, true), "<|im_start|>Hello<|im_end|>");
}

TEST(Tokenizer, LoadsTheDefaultModelFast) {
  SKIP_WITHOUT(default_model_path());
  const auto file = GgufFile::open(default_model_path());
  ASSERT_TRUE(file);
  const TimePoint start = now();
  const auto tokenizer = Tokenizer::from_gguf(*file);
  const double taken = to_seconds(now() - start);
  ASSERT_TRUE(tokenizer);
  RecordProperty("milliseconds", static_cast<int>(taken * 1000));
  EXPECT_LT(taken, 5.0);  // release: under 60 ms; a sanitizer or a busy machine takes longer
}

TEST(Tokenizer, LlamaBeginsWithOneBos) {
  SKIP_WITHOUT(test_vocab("llama-bpe"));
  Tokenizer tokenizer = open_tokenizer("llama-bpe");
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.encode("Hi", false, true), (Ids{128000, 13347}));
  EXPECT_EQ(tokenizer.encode("Hi", false, false), (Ids{13347}));
  EXPECT_EQ(tokenizer.encode("<|begin_of_text|>Hi", true, true), (Ids{128000, 13347}));
  EXPECT_GT(tokenizer.encode("<|begin_of_text|>Hi", false, true).size(), 5U);
}

class TinyTokenizer : public ::testing::Test {
 protected:
  Tokenizer built() { return std::move(*Tokenizer::from_data(tiny_.data())); }
  std::string refusal(const TokenizerData& data) {
    const auto refused = Tokenizer::from_data(data);
    return refused ? "accepted" : refused.error().message;
  }
  TinyVocabulary tiny_;
};

TEST_F(TinyTokenizer, OnlyTrustedTextBecomesControlTokens) {
  const TokenId control = tiny_.add("<x>", TokenType::control);
  for (const char* text : {"<", ">"}) tiny_.add(text);
  Tokenizer tokenizer = built();
  EXPECT_EQ(tokenizer.encode("a<x>", true, false), (Ids{0, control}));
  EXPECT_EQ(tokenizer.encode("a<x>", false, false), (Ids{0, 29, 23, 30}));
  EXPECT_EQ(tokenizer.encode({{"<x>", true}, {"<x>", false}, {"<x>", true}}, false),
            (Ids{control, 29, 23, 30, control}));
}

TEST_F(TinyTokenizer, NoControlTokenSpansASeam) {
  tiny_.add("<x>", TokenType::control);
  for (const char* text : {"<", ">"}) tiny_.add(text);
  Tokenizer tokenizer = built();
  EXPECT_EQ(tokenizer.encode({{"<", true}, {"x", false}, {">", true}}, false), (Ids{29, 23, 30}));
  EXPECT_EQ(tokenizer.encode({{"<x", false}, {">", true}}, false), (Ids{29, 23, 30}));
}

TEST_F(TinyTokenizer, TextMergesAcrossASeam) {
  const TokenId ab = tiny_.merge("a", "b");
  Tokenizer tokenizer = built();
  EXPECT_EQ(tokenizer.encode({{"a", true}, {"b", false}}, false), Ids{ab});
}

TEST_F(TinyTokenizer, UserDefinedTokensAreTextForEverybody) {
  const TokenId tool = tiny_.add("<tool>", TokenType::user_defined);
  Tokenizer tokenizer = built();
  EXPECT_EQ(tokenizer.encode("a<tool>b", false, false), (Ids{0, tool, 1}));
  EXPECT_EQ(tokenizer.decode({tool}, false), "<tool>");
}

TEST_F(TinyTokenizer, AStopTokenIsAControlTokenWhateverTheFileSays) {
  const TokenId stop = tiny_.add("<|im_end|>", TokenType::user_defined);
  Tokenizer tokenizer = built();
  EXPECT_EQ(tokenizer.stop_ids(), Ids{stop});
  EXPECT_TRUE(tokenizer.is_control(stop));
  EXPECT_NE(tokenizer.encode("<|im_end|>", false, false), Ids{stop});
  EXPECT_EQ(tokenizer.encode("<|im_end|>", true, false), Ids{stop});
}

TEST_F(TinyTokenizer, TextThatIsNotUtf8IsReadAsReplacementCharacters) {
  for (const char* byte : {"ï", "¿", "½"}) tiny_.add(byte);  // the bytes of U+FFFD
  Tokenizer tokenizer = built();
  EXPECT_EQ(tokenizer.encode("a\xFF", false, false), (Ids{0, 28, 29, 30}));
}

TEST_F(TinyTokenizer, RefusesWhatItCannotRead) {
  TokenizerData data = tiny_.data();
  data.eos = 28;
  EXPECT_EQ(refusal(data), "the end-of-sequence token is 28, but the vocabulary has 28 tokens");
  data.eos = -1;
  EXPECT_EQ(refusal(data), "the end-of-sequence token is -1, but the vocabulary has 28 tokens");
  data.model = "bert";
  EXPECT_EQ(refusal(data),
            "the model's tokenizer is 'bert'; those that work are 'gpt2' (byte-level BPE) and "
            "'llama' (SentencePiece's BPE)");
}

TEST(CheckTokenizer, SaysWhetherAFileCanBeRead) {
  const std::string bytes = make_tiny_model({}).value();
  const auto refusal = [&](std::string_view key, std::string_view old, std::string_view name) {
    std::string changed = bytes;
    const std::size_t at = changed.find(old, changed.find(key));
    if (at == std::string::npos || old.size() != name.size()) return std::string("no such value");
    changed.replace(at, old.size(), name);
    const auto file = GgufFile::parse(std::as_bytes(std::span(changed)));
    if (!file) return file.error().message;
    const Status checked = check_tokenizer(*file);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_EQ(refusal("tokenizer.ggml.model", "gpt2", "gpt2"), "");
  EXPECT_NE(refusal("tokenizer.ggml.model", "gpt2", "bert").find("'gpt2' (byte-level BPE)"),
            std::string::npos);
  EXPECT_NE(refusal("tokenizer.ggml.pre", "smollm", "falcon").find("'falcon'; those that work"),
            std::string::npos);
  EXPECT_NE(refusal("tokenizer.ggml.merges", "tokenizer.ggml.merges", "tokenizer.ggml.mergex")
                .find("has no merges"),
            std::string::npos);
  // What contradicts itself inside the vocabulary.
  using namespace std::string_view_literals;
  EXPECT_NE(refusal("tokenizer.ggml.eos_token_id", "\4\0\0\0\2\0\0\0"sv, "\4\0\0\0\2\2\0\0"sv)
                .find("the end-of-sequence token is 514"),
            std::string::npos);
  EXPECT_NE(refusal("tokenizer.ggml.merges", "e r", "r #").find("makes no token"),
            std::string::npos);
}

}  // namespace
}  // namespace plimsoll
