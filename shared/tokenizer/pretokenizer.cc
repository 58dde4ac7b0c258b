#include "shared/tokenizer/pretokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

// Unicode's White_Space. PCRE2's own \s also takes U+180E, which has been no space since Unicode
// 6.3; the tokenizers that models were trained with do not.
#define SPACE                                                                                 \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
  "\\x{205f}\\x{3000}"
#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
// Runs of white space give their last character to what follows, unless nothing does.
#define SPACES "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

// Digits are isolated first and what lies between them is cut on its own: hence a digit ends the
// text for the look-ahead.
constexpr const char* kSmollm = CONTRACTIONS "| ?\\p{L}+|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE
                                             "]+(?![^" SPACE "\\p{N}])|[" SPACE "]+";
constexpr const char* kGpt2 =
    CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" SPACES;
constexpr const char* kLlamaBpe =
    "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" SPACE
    "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|" SPACES;
constexpr const char* kQwen2 =
    "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACE
    "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|" SPACES;
#undef SPACES
#undef CONTRACTIONS
#undef SPACE

struct Family {
  std::string_view name;
  const char* pattern;
  bool ignores_merges = false;
  bool adds_bos = false;
};

constexpr std::array kFamilies = {
    Family{"smollm", kSmollm},
    Family{"gpt-2", kGpt2},
    Family{"llama-bpe", kLlamaBpe, true, true},
    Family{"qwen2", kQwen2},
    // The same rules under other names.
    Family{"starcoder", kSmollm},
    Family{"refact", kSmollm},
    Family{"command-r", kSmollm},
    Family{"phi-2", kGpt2},
    Family{"mpt", kGpt2},
    Family{"olmo", kGpt2},
    Family{"llama3", kLlamaBpe, true, true},
    Family{"llama-v3", kLlamaBpe, true, true},
    Family{"deepseek-r1-qwen", kQwen2},
};

// Steps of one match. A piece is matched in one pass with at most one step back, so this is only
// reached where PCRE2 falls back from its JIT.
constexpr std::uint32_t kMatchLimit = 10'000'000;

std::size_t first_character(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) {
    ++length;
  }
  return length;
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

struct Pretokenizer::State {
  Family family;
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_data, FreeMatch> match;
  std::unique_ptr<pcre2_match_context, FreeContext> context;
};

Pretokenizer::Pretokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::named(std::string_view name) {
  const Family* family = nullptr;
  for (const Family& candidate : kFamilies) {
    if (candidate.name == name) family = &candidate;
  }
  if (family == nullptr) {
    std::string known;
    for (const Family& candidate : kFamilies) {
      known += (known.empty() ? "" : ", ") + std::string(candidate.name);
    }
    return invalid(fmt::format(
        "the model's pre-tokenizer is {}; those that work are {}",
        name.empty() ? "not named (tokenizer.ggml.pre is absent)" : fmt::format("'{}'", name),
        known));
  }
  auto state = std::make_unique<State>();
  state->family = *family;
  int error = 0;
  std::size_t offset = 0;
  state->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(family->pattern),
                                  PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED,
                                  &error, &offset, nullptr));
  if (state->code == nullptr) {
    return internal_error(
        fmt::format("PCRE2 cannot compile the pattern of pre-tokenizer '{}': error {} at {}", name,
                    error, offset));
  }
  // Where JIT is not available (a hardened kernel), matching falls back by itself.
  (void)pcre2_jit_compile(state->code.get(), PCRE2_JIT_COMPLETE);
  state->match.reset(pcre2_match_data_create(1, nullptr));
  state->context.reset(pcre2_match_context_create(nullptr));
  if (state->match == nullptr || state->context == nullptr) {
    return internal_error("PCRE2 has no memory for its match data");
  }
  pcre2_set_match_limit(state->context.get(), kMatchLimit);
  return Pretokenizer(std::move(state));
}

bool Pretokenizer::ignores_merges() const { return state_->family.ignores_merges; }
bool Pretokenizer::adds_bos() const { return state_->family.adds_bos; }

std::size_t Pretokenizer::next(std::string_view text) const {
  if (text.empty()) return 0;
  // Without NO_UTF_CHECK each call would check the whole rest of the text again.
  const int rc =
      pcre2_match(state_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                  PCRE2_NO_UTF_CHECK, state_->match.get(), state_->context.get());
  if (rc >= 0) {
    const std::size_t end = pcre2_get_ovector_pointer(state_->match.get())[1];
    if (end > 0) return std::min(end, text.size());
  }
  // A limit was reached, or the pattern has a hole: one character alone, so that text is never
  // lost and the loop always ends.
  return first_character(text);
}

std::vector<std::string_view> Pretokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  const bool valid = is_utf8(text);
  while (!text.empty()) {
    const std::size_t length = valid ? next(text) : first_character(text);
    pieces.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return pieces;
}

}  // namespace plimsoll
