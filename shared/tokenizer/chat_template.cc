#include "shared/tokenizer/chat_template.h"

#include <utility>

#include "shared/base/clock.h"
#include "shared/tokenizer/jinja/interpreter.h"
#include "shared/tokenizer/jinja/parser.h"

namespace plimsoll {

struct ChatTemplate::State {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::compile(std::string_view source) {
  auto state = std::make_unique<State>();
  state->body = TRY_CONTEXT("compile the chat template: ", jinja::parse(source));
  return ChatTemplate(std::move(state));
}

Result<std::vector<PromptSegment>> ChatTemplate::render(const Json& variables) const {
  return render(variables, unix_seconds());
}

Result<std::vector<PromptSegment>> ChatTemplate::render(const Json& variables,
                                                        std::int64_t unix_time) const {
  jinja::Interpreter interpreter(jinja::Limits(), unix_time);
  auto run = interpreter.run(state_->body, variables);
  if (!run) {
    const bool own_words = run.error().message.starts_with("the chat template");
    return (own_words ? std::string() : "render the chat template: ") + std::move(run.error());
  }
  const jinja::Text& text = *run;
  std::vector<PromptSegment> segments;
  for (std::size_t start = 0; start < text.size();) {
    const bool trusted = text.trusted(start);
    std::size_t end = start + 1;
    while (end < text.size() && text.trusted(end) == trusted) ++end;
    segments.push_back({text.bytes().substr(start, end - start), trusted});
    start = end;
  }
  return segments;
}

}  // namespace plimsoll
