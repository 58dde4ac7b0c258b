#include "shared/tokenizer/byte_tokenizer.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "shared/tokenizer/tokenizer_data.h"

namespace plimsoll {
namespace {

constexpr int kBytes = 256;

bool is_spelled_as_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// GPT-2's alphabet: a byte that prints is the character of that number, the others are the
// characters from 256 on. All of them have at most two bytes of UTF-8.
std::string spelling(int byte, int& next_other) {
  const int code = is_spelled_as_itself(byte) ? byte : next_other++;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

Result<Tokenizer> make_byte_tokenizer(std::int64_t vocab) {
  if (vocab < kBytes) {
    return invalid(
        fmt::format("a vocabulary of {} tokens has no room for {} bytes", vocab, kBytes));
  }
  std::vector<std::string> tokens;
  std::vector<std::int64_t> types;
  int next_other = kBytes;
  for (std::int64_t id = 0; id < vocab; ++id) {
    const bool is_byte = id < kBytes;
    tokens.push_back(is_byte ? spelling(static_cast<int>(id), next_other)
                             : fmt::format("<{}>", id));
    types.push_back(static_cast<std::int64_t>(TokenType::normal));
  }
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  data.tokens = tokens;
  data.types = types;
  return Tokenizer::from_data(data);
}

}  // namespace plimsoll
