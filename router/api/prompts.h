// Prompts: from a request's fields to token ids, with every limit of the context checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "router/api/api_error.h"
#include "router/api/request_fields.h"
#include "shared/tokenizer/chat_template.h"
#include "shared/tokenizer/tokenizer.h"

namespace plimsoll {

struct Prompt {
  std::string text;  // as sent, or decoded from ids
  std::vector<std::int64_t> ids;
};

struct PromptLimits {
  std::int64_t context_length = 0;
  // Text longer than this cannot fit, whatever its tokens are; it is refused before the work.
  std::size_t bytes_max = 0;
};

// What of a batch can be checked without tokens: its shape, how many prompts it has (into `count`)
// and how much text they have together.
Refusal check_batch(const RequestFields& fields, std::size_t& count);
// The tokens of a text as it is; of some texts there are none.
Refusal text_prompt(const std::string& text, const RequestFields& fields, Tokenizer& tokenizer,
                    const PromptLimits& limits, Prompt& prompt);
// To generate from: each has a token at least. One a prompt of the batch, once check_batch is
// passed. A caller of /v1/completions writes the whole prompt, so that names of control tokens in
// it mean those tokens.
Refusal completion_prompts(const RequestFields& fields, Tokenizer& tokenizer,
                           const PromptLimits& limits, std::vector<Prompt>& prompts);
// Messages through the model's template; names of control tokens in their text stay text.
// `chat_template` is null where the model has none.
Refusal chat_prompt(const RequestFields& fields, Tokenizer& tokenizer,
                    const ChatTemplate* chat_template, const PromptLimits& limits, Prompt& prompt);

// max_tokens as asked for, or the default, against what the context leaves after the prompt.
struct TokenBudget {
  std::int64_t max_tokens = 0;
};
Refusal token_budget(const RequestFields& fields, bool chat, std::size_t prompt_tokens,
                     const PromptLimits& limits, TokenBudget& budget);

PromptLimits prompt_limits(const Tokenizer& tokenizer, std::int64_t context_length);

}  // namespace plimsoll
