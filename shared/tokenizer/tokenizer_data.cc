#include "shared/tokenizer/tokenizer_data.h"

namespace plimsoll {
namespace {

Result<std::optional<std::int64_t>> optional_id(const GgufFile& file, std::string_view key) {
  if (file.find(key) == nullptr) return std::optional<std::int64_t>();
  return std::optional<std::int64_t>(TRY(file.required_int(key)));
}

}  // namespace

Result<TokenizerData> tokenizer_data(const GgufFile& file) {
  TokenizerData data;
  data.model = TRY(file.required_string("tokenizer.ggml.model"));
  data.pre = TRY(file.string_or("tokenizer.ggml.pre", ""));
  const auto* tokens = TRY(file.strings("tokenizer.ggml.tokens"));
  if (tokens == nullptr) {
    return invalid(
        "the file has no tokenizer.ggml.tokens, so text cannot be tokenized; "
        "convert the model again with its tokenizer");
  }
  data.tokens = *tokens;
  if (const auto* types = TRY(file.ints("tokenizer.ggml.token_type"))) data.types = *types;
  if (const auto* merges = TRY(file.strings("tokenizer.ggml.merges"))) data.merges = *merges;
  if (const auto* scores = TRY(file.floats("tokenizer.ggml.scores"))) data.scores = *scores;
  data.add_space_prefix = TRY(file.bool_or("tokenizer.ggml.add_space_prefix", true));
  data.bos = TRY(optional_id(file, "tokenizer.ggml.bos_token_id"));
  data.eos = TRY(optional_id(file, "tokenizer.ggml.eos_token_id"));
  data.eot = TRY(optional_id(file, "tokenizer.ggml.eot_token_id"));
  data.eom = TRY(optional_id(file, "tokenizer.ggml.eom_token_id"));
  if (file.find("tokenizer.ggml.add_bos_token") != nullptr) {
    data.add_bos = TRY(file.bool_or("tokenizer.ggml.add_bos_token", false));
  }
  return data;
}

}  // namespace plimsoll
