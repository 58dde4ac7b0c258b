#include "shared/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "shared/base/text.h"
#include "shared/tokenizer/added_tokens.h"
#include "shared/tokenizer/bpe.h"
#include "shared/tokenizer/pretokenizer.h"
#include "shared/tokenizer/spm.h"
#include "shared/tokenizer/tokenizer_data.h"
#include "shared/tokenizer/vocabulary.h"

namespace plimsoll {
namespace {

// Tokens that end an answer, by the names that model families gave them.
constexpr std::array<std::string_view, 8> kStopNames = {
    "<|im_end|>",      "<|eot_id|>",    "<|eom_id|>", "<end_of_turn>",
    "<|end_of_text|>", "<|endoftext|>", "<|end|>",    "[EOS]"};

Result<std::optional<TokenId>> checked_id(const Vocabulary& vocabulary,
                                          std::optional<std::int64_t> id, const char* what) {
  if (!id) return std::optional<TokenId>();
  if (*id < 0 || *id >= vocabulary.size()) {
    return invalid(fmt::format("the {} token is {}, but the vocabulary has {} tokens", what, *id,
                               vocabulary.size()));
  }
  return std::optional<TokenId>(static_cast<TokenId>(*id));
}

// Byte-level BPE: merges inside the pieces that a pre-tokenizer cuts.
struct PiecewiseBpe {
  Pretokenizer pretokenizer;
  Bpe bpe;
};

Status check_model(const TokenizerData& data) {
  if (data.is_spm()) return {};
  if (data.model == "gpt2") {
    TRY(Pretokenizer::named(data.pre));
    return {};
  }
  return invalid(fmt::format(
      "the model's tokenizer is '{}'; those that work are 'gpt2' (byte-level BPE) and 'llama' "
      "(SentencePiece's BPE)",
      to_valid_utf8(data.model)));
}

// Of a file: a token of more than one byte is there for text that merges make.
Status check_merges(const TokenizerData& data) {
  if (data.is_spm() || !data.merges.empty()) return {};
  constexpr std::size_t kByteSpellingMax = 2;
  constexpr auto kNormal = static_cast<std::int64_t>(TokenType::normal);
  bool needs_merges = false;
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    const bool is_normal = id >= data.types.size() || data.types[id] == kNormal;
    needs_merges = needs_merges || (is_normal && data.tokens[id].size() > kByteSpellingMax);
  }
  const Pretokenizer pretokenizer = TRY(Pretokenizer::named(data.pre));
  if (!needs_merges || pretokenizer.ignores_merges()) return {};
  return invalid(
      "the vocabulary has no merges (tokenizer.ggml.merges), without which every text would fall "
      "into single bytes; convert the model again, with its merges");
}

}  // namespace

struct Tokenizer::State {
  Vocabulary vocabulary;
  std::variant<PiecewiseBpe, Spm> merges;
  bool space_prefix = false;
  AddedTokens added;
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  bool adds_bos = false;
  std::vector<TokenId> stop_ids;

  void encode_text(std::string_view text, std::vector<TokenId>& out) {
    // The pre-tokenizer reads out of bounds where this does not hold: checked once a run.
    CHECK(is_utf8(text));
    if (auto* spm = std::get_if<Spm>(&merges)) {
      if (text.empty()) return;
      std::string unmarked = space_prefix ? " " : "";
      append_unmarked(text, unmarked);
      spm->encode(vocabulary, unmarked, out);
      return;
    }
    auto& [pretokenizer, bpe] = std::get<PiecewiseBpe>(merges);
    while (!text.empty()) {
      const std::size_t length = pretokenizer.next(text);
      bpe.encode(vocabulary, text.substr(0, length), out);
      text.remove_prefix(length);
    }
  }
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::from_gguf(const GgufFile& file) {
  const TokenizerData data = TRY_CONTEXT("read the tokenizer: ", tokenizer_data(file));
  TRY(check_model(data));
  TRY(check_merges(data));
  return from_data(data);
}

Result<Tokenizer> Tokenizer::from_data(const TokenizerData& data) {
  TRY(check_model(data));
  Vocabulary vocabulary = TRY(Vocabulary::build(data));
  const auto bos = TRY(checked_id(vocabulary, data.bos, "beginning-of-sequence"));
  const auto eos = TRY(checked_id(vocabulary, data.eos, "end-of-sequence"));
  std::vector<TokenId> stop_ids;
  for (const auto& [id, what] :
       {std::pair{data.eos, "end-of-sequence"}, std::pair{data.eot, "end-of-turn"},
        std::pair{data.eom, "end-of-message"}}) {
    const auto checked = TRY(checked_id(vocabulary, id, what));
    if (checked) stop_ids.push_back(*checked);
  }
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const bool named = std::ranges::find(kStopNames, vocabulary.bytes(id)) != kStopNames.end();
    if (!named || (vocabulary.type(id) == TokenType::normal && vocabulary.bytes(id) == "[EOS]"))
      continue;
    // Some files call it a normal token; nobody's text must end an answer.
    vocabulary.make_control(id);
    stop_ids.push_back(id);
  }
  std::ranges::sort(stop_ids);
  stop_ids.erase(std::ranges::unique(stop_ids).begin(), stop_ids.end());
  AddedTokens added = TRY(AddedTokens::build(vocabulary));
  bool family_adds_bos = true;
  std::unique_ptr<State> state;
  const auto make_state = [&](std::variant<PiecewiseBpe, Spm> merges) {
    state = std::make_unique<State>(State{.vocabulary = std::move(vocabulary),
                                          .merges = std::move(merges),
                                          .added = std::move(added),
                                          .bos = bos,
                                          .eos = eos,
                                          .stop_ids = std::move(stop_ids)});
  };
  if (data.is_spm()) {
    make_state(TRY(Spm::build(vocabulary, data)));
    state->space_prefix = data.add_space_prefix;
  } else {
    Pretokenizer pretokenizer = TRY(Pretokenizer::named(data.pre));
    family_adds_bos = pretokenizer.adds_bos();
    Bpe bpe = TRY(Bpe::build(vocabulary, data, pretokenizer.ignores_merges()));
    make_state(PiecewiseBpe{std::move(pretokenizer), std::move(bpe)});
  }
  state->adds_bos = bos.has_value() && data.add_bos.value_or(family_adds_bos);
  return Tokenizer(std::move(state));
}

std::vector<TokenId> Tokenizer::encode(const std::vector<PromptSegment>& segments, bool add_bos) {
  std::vector<TokenId> out;
  // Text between added tokens, across segments: pieces may span the seam between a template's text
  // and a user's, added tokens may not.
  std::string run;
  const auto flush = [&] {
    state_->encode_text(run, out);
    run.clear();
  };
  for (const PromptSegment& segment : segments) {
    const std::string text = is_utf8(segment.text) ? segment.text : to_valid_utf8(segment.text);
    std::size_t from = 0;
    while (const auto found = state_->added.find(text, from, segment.trusted)) {
      run.append(text, from, found->position - from);
      flush();
      out.push_back(found->id);
      from = found->position + found->length;
    }
    run.append(text, from);
  }
  flush();
  const bool has_bos = !out.empty() && out.front() == state_->bos;
  if (add_bos && state_->adds_bos && !has_bos) out.insert(out.begin(), *state_->bos);
  return out;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool trusted, bool add_bos) {
  return encode({PromptSegment{std::string(text), trusted}}, add_bos);
}

std::optional<std::string_view> Tokenizer::token_bytes(TokenId id) const {
  if (!state_->vocabulary.contains(id)) return std::nullopt;
  return state_->vocabulary.bytes(id);
}

bool Tokenizer::is_control(TokenId id) const { return state_->vocabulary.is_control(id); }

std::string Tokenizer::decode(const std::vector<TokenId>& ids, bool with_control) const {
  std::string bytes;
  bool begins = true;  // the first text, where encode() put a space
  for (const TokenId id : ids) {
    if (!state_->vocabulary.contains(id) || (is_control(id) && !with_control)) continue;
    std::string_view own = state_->vocabulary.bytes(id);
    if (!is_control(id) && std::exchange(begins, false) && state_->space_prefix &&
        own.starts_with(' ')) {
      own.remove_prefix(1);
    }
    bytes += own;
  }
  return to_valid_utf8(bytes);
}

std::int64_t Tokenizer::vocab_size() const { return state_->vocabulary.size(); }
std::optional<TokenId> Tokenizer::bos() const { return state_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return state_->eos; }
bool Tokenizer::adds_bos() const { return state_->adds_bos; }
const std::vector<TokenId>& Tokenizer::stop_ids() const { return state_->stop_ids; }

Status check_tokenizer(const GgufFile& file) {
  TRY(Tokenizer::from_gguf(file));
  return {};
}

}  // namespace plimsoll
