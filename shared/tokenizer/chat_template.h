// ChatTemplate: a model's own Jinja template, run over a list of messages.
//
// The subset of Jinja that real templates use (jinja/), with Hugging Face's settings
// (trim_blocks, lstrip_blocks). Templates come from model files and are not trusted: source size,
// recursion, loop count and output size are bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/tokenizer/tokenizer.h"

namespace plimsoll {

class ChatTemplate {
 public:
  // Errors: syntax with line number; a feature outside the subset, by name.
  static Result<ChatTemplate> compile(std::string_view source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `variables`: an object with messages, add_generation_prompt, bos_token, eos_token, tools, ...
  // Text that came out of `variables` is untrusted, text of the template itself trusted; adjacent
  // segments of the same kind are joined. raise_exception(...) in the template: Code::invalid.
  // Exceptions: bos_token, eos_token, pad_token and unk_token count as the template's own.
  Result<std::vector<PromptSegment>> render(const Json& variables) const;
  // The same at a given time, which strftime_now(...) shows.
  Result<std::vector<PromptSegment>> render(const Json& variables, std::int64_t unix_time) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll
