#include "shared/tokenizer/spm.h"

#include <algorithm>

#include <fmt/format.h>

namespace plimsoll {
namespace {

// Of the character that begins with this byte, in valid UTF-8.
std::size_t character_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

Result<Spm> Spm::build(const Vocabulary& vocabulary, const TokenizerData& data) {
  if (std::ssize(data.scores) != vocabulary.size()) {
    return invalid(fmt::format(
        "the vocabulary has {} tokens but {} scores (tokenizer.ggml.scores); SPM needs one each",
        vocabulary.size(), data.scores.size()));
  }
  Spm spm;
  spm.scores_.assign(data.scores.begin(), data.scores.end());
  const auto odd = std::ranges::find_if(spm.scores_, [](double score) { return score != score; });
  if (odd != spm.scores_.end()) {
    return invalid(fmt::format("the score of token {} of the vocabulary is not a number",
                               odd - spm.scores_.begin()));
  }
  spm.byte_ids_.fill(-1);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.type(id) == TokenType::unknown) spm.unknown_ = id;
    if (vocabulary.type(id) != TokenType::byte || vocabulary.bytes(id).size() != 1) continue;
    spm.byte_ids_[static_cast<unsigned char>(vocabulary.bytes(id)[0])] = id;
  }
  return spm;
}

// Of two merges the one with the higher score goes first, of equal scores the leftmost.
bool Spm::later(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score < b.score : a.left > b.left;
}

std::optional<TokenId> Spm::token_of(const Vocabulary& vocabulary, std::string_view piece) const {
  const auto id = vocabulary.find(piece);
  // Anybody's text may merge: it must not become a control token.
  return id && !vocabulary.is_control(*id) ? id : std::nullopt;
}

void Spm::encode(const Vocabulary& vocabulary, std::string_view text, std::vector<TokenId>& out) {
  if (text.empty()) return;
  cut_into_characters(text);
  candidates_.clear();
  const auto count = static_cast<std::int32_t>(symbols_.size());
  for (std::int32_t i = 0; i < count; ++i) push_candidate(vocabulary, text, i);
  while (!candidates_.empty()) {
    std::ranges::pop_heap(candidates_, later);
    const Candidate best = candidates_.back();
    candidates_.pop_back();
    const Symbol& left = symbols_[static_cast<std::size_t>(best.left)];
    if (left.length == 0 || left.next < 0) continue;
    const Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    if (left.length + right.length != best.length) continue;
    merge(best);
    push_candidate(vocabulary, text, left.previous);
    push_candidate(vocabulary, text, best.left);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
    const Symbol& symbol = symbols_[static_cast<std::size_t>(i)];
    const std::string_view piece = text.substr(symbol.begin, symbol.length);
    if (const auto id = token_of(vocabulary, piece)) {
      out.push_back(*id);
      continue;
    }
    for (const char byte : piece) {
      const TokenId id = byte_ids_[static_cast<unsigned char>(byte)];
      if (id >= 0) {
        out.push_back(id);
      } else if (unknown_ >= 0) {
        out.push_back(unknown_);
        break;
      }
    }
  }
}

void Spm::cut_into_characters(std::string_view text) {
  symbols_.clear();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text[at]);
    const auto index = static_cast<std::int32_t>(symbols_.size());
    symbols_.push_back({.begin = static_cast<std::uint32_t>(at),
                        .length = static_cast<std::uint32_t>(length),
                        .previous = index - 1,
                        .next = index + 1});
    at += length;
  }
  symbols_.back().next = -1;
}

void Spm::push_candidate(const Vocabulary& vocabulary, std::string_view text, std::int32_t left) {
  if (left < 0) return;
  const Symbol& a = symbols_[static_cast<std::size_t>(left)];
  if (a.next < 0) return;
  const std::uint32_t length = a.length + symbols_[static_cast<std::size_t>(a.next)].length;
  const auto id = token_of(vocabulary, text.substr(a.begin, length));
  if (!id) return;
  candidates_.push_back(
      {.score = scores_[static_cast<std::size_t>(*id)], .left = left, .length = length});
  std::ranges::push_heap(candidates_, later);
}

void Spm::merge(const Candidate& candidate) {
  Symbol& left = symbols_[static_cast<std::size_t>(candidate.left)];
  Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
  left.length = candidate.length;
  right.length = 0;
  left.next = right.next;
  if (right.next >= 0) symbols_[static_cast<std::size_t>(right.next)].previous = candidate.left;
}

}  // namespace plimsoll
