#include "shared/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr std::size_t kMergesMax = std::size_t{1} << 24;
constexpr std::size_t kRemembered = 8192;

// Every bit of the result depends on every bit of the pair.
std::uint64_t mix(std::uint64_t pair) {
  pair ^= pair >> 33;
  pair *= 0xFF51AFD7ED558CCDULL;
  pair ^= pair >> 33;
  pair *= 0xC4CEB9FE1A85EC53ULL;
  return pair ^ (pair >> 33);
}

std::uint64_t pair_key(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(left) + 1) << 32 | (static_cast<std::uint64_t>(right) + 1);
}

std::size_t text_slot(std::string_view text) {
  std::uint64_t hash = text.size();
  while (!text.empty()) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min<std::size_t>(text.size(), 8);
    std::memcpy(&word, text.data(), taken);
    text.remove_prefix(taken);
    hash = mix(hash ^ word);
  }
  return hash % kRemembered;
}

}  // namespace

Result<Bpe> Bpe::build(const Vocabulary& vocabulary, const TokenizerData& data,
                       bool ignore_merges) {
  if (data.merges.size() > kMergesMax) {
    return invalid(fmt::format("the vocabulary has {} merges; at most {} work", data.merges.size(),
                               kMergesMax));
  }
  Bpe bpe;
  bpe.ignore_merges_ = ignore_merges;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const auto id = vocabulary.find(std::string_view(&text, 1));
    bpe.byte_ids_[byte] = id && !vocabulary.is_control(*id) ? *id : -1;
  }
  bpe.merges_.resize(std::bit_ceil(std::max<std::size_t>(data.merges.size() * 2, 2)));
  bpe.remembered_.resize(kRemembered);
  std::string bytes;
  for (std::size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string_view text = data.merges[rank];
    const auto wrong = [&](const char* why) {
      return invalid(fmt::format("merge {} of the vocabulary, '{}', {}", rank, text, why));
    };
    const std::size_t space = text.find(' ', 1);
    if (space == std::string_view::npos) return wrong("is not two parts with a space between");
    bytes.clear();
    if (!append_spelled_bytes(text.substr(0, space), bytes))
      return wrong("is not spelled in bytes");
    const std::size_t middle = bytes.size();
    if (!append_spelled_bytes(text.substr(space + 1), bytes))
      return wrong("is not spelled in bytes");
    const auto left = vocabulary.find(std::string_view(bytes).substr(0, middle));
    const auto right = vocabulary.find(std::string_view(bytes).substr(middle));
    const auto merged = vocabulary.find(bytes);
    if (!left || !right) return wrong("has a part that is no token");
    if (!merged) return wrong("makes no token");
    // Anybody's text may merge: it must not become a control token.
    if (vocabulary.is_control(*merged)) continue;
    bpe.insert(*left, *right, static_cast<std::uint32_t>(rank), *merged);
  }
  return bpe;
}

void Bpe::insert(TokenId left, TokenId right, std::uint32_t rank, TokenId merged) {
  const std::uint64_t key = pair_key(left, right);
  const std::size_t mask = merges_.size() - 1;
  std::size_t slot = mix(key) & mask;
  while (merges_[slot].pair != 0) {
    if (merges_[slot].pair == key) return;  // the lower rank came first
    slot = (slot + 1) & mask;
  }
  merges_[slot] = {key, rank, merged};
}

const Bpe::Merge* Bpe::find(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  const std::size_t mask = merges_.size() - 1;
  for (std::size_t slot = mix(key) & mask; merges_[slot].pair != 0; slot = (slot + 1) & mask) {
    if (merges_[slot].pair == key) return &merges_[slot];
  }
  return nullptr;
}

void Bpe::encode(const Vocabulary& vocabulary, std::string_view piece, std::vector<TokenId>& out) {
  if (piece.empty()) return;
  Remembered* remembered = nullptr;
  if (piece.size() <= sizeof(Remembered::text)) {
    remembered = &remembered_[text_slot(piece)];
    if (std::string_view(remembered->text.data(), remembered->length) == piece) {
      out.insert(out.end(), remembered->ids.begin(), remembered->ids.begin() + remembered->count);
      return;
    }
  }
  const std::size_t start = out.size();
  const auto whole = ignore_merges_ ? vocabulary.find(piece) : std::nullopt;
  if (whole && !vocabulary.is_control(*whole)) {
    out.push_back(*whole);
  } else {
    merge(piece, out);
  }
  const std::size_t count = out.size() - start;
  if (remembered == nullptr || count > remembered->ids.size()) return;
  remembered->length = static_cast<std::uint8_t>(piece.size());
  remembered->count = static_cast<std::uint8_t>(count);
  std::copy(piece.begin(), piece.end(), remembered->text.begin());
  std::copy(out.begin() + static_cast<std::ptrdiff_t>(start), out.end(), remembered->ids.begin());
}

const Bpe::Merge* Bpe::merge_at(std::int32_t left) const {
  const Symbol& symbol = symbols_[static_cast<std::size_t>(left)];
  if (symbol.id < 0 || symbol.next < 0) return nullptr;
  return find(symbol.id, symbols_[static_cast<std::size_t>(symbol.next)].id);
}

void Bpe::push_candidate(std::int32_t left) {
  const Merge* merge = merge_at(left);
  if (merge == nullptr) return;
  candidates_.push_back(std::uint64_t{merge->rank} << 32 | static_cast<std::uint32_t>(left));
  std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
}

void Bpe::merge(std::string_view piece, std::vector<TokenId>& out) {
  symbols_.clear();
  candidates_.clear();
  for (const char c : piece) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(c)];
    if (id < 0) continue;
    const auto index = static_cast<std::int32_t>(symbols_.size());
    symbols_.push_back({id, index - 1, index + 1});
  }
  if (symbols_.empty()) return;
  symbols_.back().next = -1;
  for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) {
    const Merge* possible = merge_at(static_cast<std::int32_t>(i));
    if (possible != nullptr) candidates_.push_back(std::uint64_t{possible->rank} << 32 | i);
  }
  std::make_heap(candidates_.begin(), candidates_.end(), std::greater<>());
  while (!candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    const std::uint64_t best = candidates_.back();
    candidates_.pop_back();
    const auto index = static_cast<std::int32_t>(best & 0xFFFFFFFF);
    const Merge* merge = merge_at(index);
    // Its symbols may have merged with others since it was pushed.
    if (merge == nullptr || merge->rank != best >> 32) continue;
    Symbol& left = symbols_[static_cast<std::size_t>(index)];
    Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    left.id = merge->merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = index;
    if (left.previous >= 0) push_candidate(left.previous);
    push_candidate(index);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
    out.push_back(symbols_[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace plimsoll
