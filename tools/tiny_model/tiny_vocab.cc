#include "tools/tiny_model/tiny_vocab.h"

#include <array>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr std::int64_t kNormal = 1;
constexpr std::int64_t kControl = 3;

// A space is written Ġ (U+0120) in byte-level vocabularies. Each side is a byte or an earlier
// merge.
constexpr std::array<std::pair<std::string_view, std::string_view>, 24> kMerges = {{
    {"Ġ", "t"},   {"Ġ", "a"},   {"h", "e"},  {"i", "n"},  {"r", "e"},  {"o", "n"},
    {"Ġt", "he"}, {"e", "r"},   {"Ġ", "s"},  {"Ġ", "w"},  {"a", "t"},  {"n", "d"},
    {"o", "u"},   {"Ġa", "nd"}, {"i", "s"},  {"o", "r"},  {"Ġ", "o"},  {"Ġ", "i"},
    {"in", "g"},  {"l", "l"},   {"Ġo", "f"}, {"Ġt", "o"}, {"Ġi", "n"}, {"Ġi", "s"},
}};

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

// UTF-8 of a character below U+0800.
std::string utf8(unsigned character) {
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xc0U | character >> 6), static_cast<char>(0x80U | (character & 63U))};
}

// Bytes that print stand for themselves, the others for U+0100 and up, in order.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    tokens.push_back(utf8(prints ? byte : next++));
  }
  return tokens;
}

}  // namespace

std::vector<std::pair<std::string, GgufValue>> tiny_vocab() {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<std::int64_t> types(tokens.size(), kControl);
  for (std::string& token : byte_tokens()) tokens.push_back(std::move(token));
  std::vector<std::string> merges;
  for (const auto& [left, right] : kMerges) {
    merges.push_back(fmt::format("{} {}", left, right));
    tokens.push_back(fmt::format("{}{}", left, right));
  }
  types.resize(tokens.size(), kNormal);
  std::vector<std::pair<std::string, GgufValue>> metadata;
  metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  metadata.emplace_back("tokenizer.ggml.pre", std::string("smollm"));
  metadata.emplace_back("tokenizer.ggml.tokens", std::move(tokens));
  metadata.emplace_back("tokenizer.ggml.token_type", std::move(types));
  metadata.emplace_back("tokenizer.ggml.merges", std::move(merges));
  metadata.emplace_back("tokenizer.ggml.bos_token_id", std::int64_t{1});
  metadata.emplace_back("tokenizer.ggml.eos_token_id", std::int64_t{2});
  metadata.emplace_back("tokenizer.ggml.unknown_token_id", std::int64_t{0});
  metadata.emplace_back("tokenizer.ggml.padding_token_id", std::int64_t{2});
  metadata.emplace_back("tokenizer.ggml.add_bos_token", false);
  metadata.emplace_back("tokenizer.chat_template", std::string(kChatMl));
  return metadata;
}

}  // namespace plimsoll
