#include "router/setup.h"

#include <filesystem>
#include <random>
#include <utility>

#include "shared/base/clock.h"
#include "shared/model/gguf.h"

namespace plimsoll {

Result<RouterPlan> plan_router(const RouterSetup& setup) {
  if (setup.context_length < 1) {
    return invalid("start the router: the context length that came is " +
                   std::to_string(setup.context_length));
  }
  const OptionSet options =
      TRY_CONTEXT("read the options that the daemon sent: ", option_set_from_json(setup.options));
  const GgufFile file = TRY(GgufFile::open(setup.model_path));
  Tokenizer tokenizer = TRY(Tokenizer::from_gguf(file));
  const std::string source = TRY(file.string_or("tokenizer.chat_template", ""));

  std::optional<ChatTemplate> chat_template;
  std::string template_error = source.empty() ? "the model file has none" : "";
  if (!source.empty()) {
    auto compiled = ChatTemplate::compile(source);
    if (compiled) {
      chat_template = std::move(*compiled);
    } else {
      template_error = compiled.error().message;
    }
  }
  const std::string stem = std::filesystem::path(setup.model_path).stem().string();
  const PromptLimits limits = prompt_limits(tokenizer, setup.context_length);
  std::random_device random;
  ServiceSetup service;
  service.limits.queued_max = options.values.max_queued_requests;
  service.limits.hold_max = options.values.hold_deadline;
  service.limits.running_max = options.values.max_running_requests;
  service.random_seed = (std::uint64_t{random()} << 32U) | random();
  return RouterPlan{
      .options = options.values,
      .model = {.tokenizer = std::move(tokenizer),
                .chat_template = std::move(chat_template),
                .name = setup.served_model_name.empty() ? stem : setup.served_model_name,
                .stem = stem,
                .limits = limits,
                .created = unix_seconds()},
      .service = service,
      .template_error = std::move(template_error)};
}

}  // namespace plimsoll
