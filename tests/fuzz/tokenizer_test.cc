// Hostile text: any bytes give ids of the vocabulary, never a control token, and decode again.
#include "shared/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "shared/base/json.h"
#include "shared/base/text.h"
#include "shared/tokenizer/stream_decoder.h"
#include "shared/tokenizer/tokenizer_data.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

// All 256 bytes, some merges, one control and one user-defined token.
Tokenizer make_tokenizer(const char* pre) {
  std::vector<std::string> tokens;
  for (unsigned character = 33; tokens.size() < 256; ++character) {
    if ((character > 126 && character < 161) || character == 173) continue;
    std::string utf8;
    if (character < 0x80) {
      utf8 += static_cast<char>(character);
    } else {
      utf8 += static_cast<char>(0xC0 | (character >> 6));
      utf8 += static_cast<char>(0x80 | (character & 0x3F));
    }
    tokens.push_back(utf8);
  }
  const std::vector<std::string> merges = {"Ġ t", "h e", "Ġt he", "e r", "Ġ Ġ", "ĠĠ ĠĠ", "Ã ©"};
  for (const std::string& merge : merges) {
    std::string token = merge;
    token.erase(token.find(' ', 1), 1);
    tokens.push_back(token);
  }
  tokens.emplace_back("<|im_end|>");
  tokens.emplace_back("<tool>");
  std::vector<std::int64_t> types(tokens.size(), 1);
  types[types.size() - 2] = 3;
  types[types.size() - 1] = 4;
  TokenizerData data;
  data.model = "gpt2";
  data.pre = pre;
  data.tokens = tokens;
  data.types = types;
  data.merges = merges;
  auto tokenizer = Tokenizer::from_data(data);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

void fuzz_one(std::span<const std::byte> bytes) {
  static Tokenizer tokenizers[] = {make_tokenizer("smollm"), make_tokenizer("gpt-2"),
                                   make_tokenizer("llama-bpe"), make_tokenizer("qwen2")};
  Tokenizer& tokenizer = tokenizers[bytes.size() % 4];
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto ids = tokenizer.encode(text, false, false);
  for (const TokenId id : ids) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, tokenizer.vocab_size());
    EXPECT_FALSE(tokenizer.is_control(id));
  }
  const std::string decoded = tokenizer.decode(ids, false);
  EXPECT_EQ(decoded, to_valid_utf8(text));
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (const TokenId id : ids) streamed += decoder.push(id);
  EXPECT_EQ(streamed + decoder.finish(), decoded);
}

PLIMSOLL_FUZZ_MAIN(fuzz_one)

TEST(FuzzTokenizer, AnyTextGivesIdsThatDecodeToIt) {
  std::vector<std::string> seeds;
  const std::string strings = read_test_file(golden_path("tokenizer/strings.jsonl"));
  for (const std::string_view line : split(strings, '\n')) {
    if (!line.empty()) seeds.push_back(parse_json(line)->as_string());
  }
  FuzzOptions options;
  options.seed = 20241129;
  options.dictionary = {"<|im_end|>",       "<tool>", " the", "\xC3\xA9", "\xE2\x80\xA8",
                        "\xF0\x9F\x98\x80", "'ll",    "\r\n", "    "};
  EXPECT_GE(fuzz_corpus(seeds, options, fuzz_one).inputs, seeds.size());
}

TEST(FuzzTokenizer, AVocabularyThatWouldSplitCharactersIsRefused) {
  const std::vector<std::string> tokens = {"a", "\x9F"};
  const std::vector<std::int64_t> types = {1, 4};
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  data.tokens = tokens;
  data.types = types;
  const auto tokenizer = Tokenizer::from_data(data);
  ASSERT_FALSE(tokenizer);
  EXPECT_NE(tokenizer.error().message.find("is not valid UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
