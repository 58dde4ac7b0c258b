#include "shared/tokenizer/vocabulary.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr std::size_t kTokensMax = std::size_t{1} << 24;
constexpr std::size_t kArenaBytesMax = std::size_t{1} << 30;

// GPT-2's alphabet: bytes that print stand for themselves; the 68 others, in order, for U+0100...
constexpr std::size_t kAlphabetEnd = 256 + 68;

constexpr bool stands_for_itself(std::size_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174);
}

constexpr std::array<std::int16_t, kAlphabetEnd> make_byte_of_character() {
  std::array<std::int16_t, kAlphabetEnd> table{};
  for (auto& entry : table) entry = -1;
  std::size_t next = 256;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    table[stands_for_itself(byte) ? byte : next++] = static_cast<std::int16_t>(byte);
  }
  return table;
}

constexpr auto kByteOfCharacter = make_byte_of_character();

std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kFactor = 0x9FB21C651E98DF25ULL;
  std::uint64_t hash = bytes.size() * kFactor;
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min<std::size_t>(bytes.size(), 8);
    std::memcpy(&word, bytes.data(), taken);
    bytes.remove_prefix(taken);
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 32;
  }
  return hash;
}

Result<TokenType> token_type(const TokenizerData& data, std::size_t id) {
  if (data.types.empty()) return TokenType::normal;
  const std::int64_t type = data.types[id];
  if (type < 1 || type > 6) {
    return invalid(
        fmt::format("token {} of the vocabulary has type {}; types are 1 to 6", id, type));
  }
  return static_cast<TokenType>(type);
}

// "<0x0A>": the byte 10.
std::optional<char> named_byte(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
  if (error != std::errc() || end != text.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

}  // namespace

bool append_spelled_bytes(std::string_view spelling, std::string& out) {
  const std::size_t start = out.size();
  for (std::size_t i = 0; i < spelling.size(); ++i) {
    // The alphabet ends below U+0144: one or two bytes of UTF-8.
    std::size_t character = static_cast<unsigned char>(spelling[i]);
    if (character >= 0xC2 && character <= 0xC5 && i + 1 < spelling.size()) {
      const auto second = static_cast<unsigned char>(spelling[++i]);
      character =
          (second & 0xC0) == 0x80 ? ((character & 0x1F) << 6) | (second & 0x3F) : kAlphabetEnd;
    } else if (character >= 0x80) {
      character = kAlphabetEnd;
    }
    const std::int16_t byte =
        character < kAlphabetEnd ? kByteOfCharacter[character] : std::int16_t{-1};
    if (byte < 0) {
      out.resize(start);
      return false;
    }
    out.push_back(static_cast<char>(byte));
  }
  return true;
}

void append_unmarked(std::string_view text, std::string& out) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = text.find(kSpaceMark, at);
    out += text.substr(at, mark - at);
    if (mark == std::string_view::npos) return;
    out += ' ';
    at = mark + kSpaceMark.size();
  }
}

Result<Vocabulary> Vocabulary::build(const TokenizerData& data) {
  const std::size_t count = data.tokens.size();
  if (count == 0) return invalid("the model file's vocabulary is empty");
  if (count > kTokensMax) {
    return invalid(fmt::format("the vocabulary has {} tokens; at most {} work", count, kTokensMax));
  }
  if (!data.types.empty() && data.types.size() != count) {
    return invalid(
        fmt::format("the vocabulary has {} tokens but {} token types", count, data.types.size()));
  }
  Vocabulary vocabulary;
  std::size_t bytes = 0;
  for (const std::string& token : data.tokens) bytes += token.size();
  if (bytes > kArenaBytesMax) {
    return invalid(
        fmt::format("the vocabulary has {} bytes; at most {} work", bytes, kArenaBytesMax));
  }
  vocabulary.arena_.reserve(bytes);
  vocabulary.ends_.reserve(count);
  vocabulary.types_.reserve(count);
  vocabulary.slots_.resize(std::bit_ceil(count * 2));
  std::string scratch;
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenType type = TRY(token_type(data, i));
    if (data.is_spm()) {
      vocabulary.add_marked(id, data.tokens[i], type);
    } else {
      vocabulary.add_spelled(id, data.tokens[i], type, scratch);
    }
  }
  return vocabulary;
}

void Vocabulary::add_spelled(TokenId id, std::string_view text, TokenType type,
                             std::string& scratch) {
  scratch.clear();
  const bool spelled = append_spelled_bytes(text, scratch);
  const bool is_text =
      type == TokenType::normal || type == TokenType::unused || type == TokenType::byte;
  const std::string_view bytes = spelled && is_text ? std::string_view(scratch) : text;
  arena_ += bytes;
  ends_.push_back(static_cast<std::uint32_t>(arena_.size()));
  types_.push_back(type);
  if (spelled && bytes == scratch && !bytes.empty()) index(id);
}

void Vocabulary::add_marked(TokenId id, std::string_view text, TokenType type) {
  const std::size_t start = arena_.size();
  const auto byte = type == TokenType::byte ? named_byte(text) : std::nullopt;
  if (byte) {
    arena_ += *byte;
  } else if (type == TokenType::control || type == TokenType::unknown) {
    arena_ += text;
  } else {
    append_unmarked(text, arena_);
  }
  ends_.push_back(static_cast<std::uint32_t>(arena_.size()));
  types_.push_back(type);
  if (!byte && arena_.size() > start) index(id);
}

void Vocabulary::index(TokenId id) {
  const std::string_view key = bytes(id);
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_bytes(key) & mask;
  while (slots_[slot] != 0) {
    if (bytes(slots_[slot] - 1) == key) return;  // the first of equal tokens is the one
    slot = (slot + 1) & mask;
  }
  slots_[slot] = id + 1;
}

std::string_view Vocabulary::bytes(TokenId id) const {
  const auto i = static_cast<std::size_t>(id);
  const std::size_t start = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(arena_).substr(start, ends_[i] - start);
}

bool Vocabulary::is_control(TokenId id) const {
  return contains(id) && (type(id) == TokenType::control || type(id) == TokenType::unknown);
}

std::optional<TokenId> Vocabulary::find(std::string_view key) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = hash_bytes(key) & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if (bytes(slots_[slot] - 1) == key) return slots_[slot] - 1;
  }
  return std::nullopt;
}

}  // namespace plimsoll
