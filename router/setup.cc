#include "router/setup.h"

#include <filesystem>
#include <random>
#include <utility>

#include "shared/base/clock.h"
#include "shared/model/gguf.h"
#include "shared/model/model_source.h"
#include "shared/options/device_choice.h"
#include "shared/tokenizer/byte_tokenizer.h"

namespace plimsoll {
namespace {

struct ModelText {
  Tokenizer tokenizer;
  std::string chat_template;
  std::string why_no_template;
};

// A model that is only rehearsed may be a config.json alone, which has no vocabulary.
Result<ModelText> read_model_text(const std::string& path, const Options& options) {
  const DeviceChoice devices = TRY(parse_device_choice(options.devices));
  if (devices.kind == DeviceKind::simulated && is_description(path)) {
    const ModelSpec spec = TRY_CONTEXT("model " + path + ": ", read_model(path));
    return ModelText{TRY(make_byte_tokenizer(spec.vocab)), "",
                     "the model is described without its tokenizer: a token is a byte here"};
  }
  const GgufFile file = TRY(GgufFile::open(path));
  return ModelText{TRY(Tokenizer::from_gguf(file)),
                   TRY(file.string_or("tokenizer.chat_template", "")), "the model file has none"};
}

}  // namespace

Result<RouterPlan> plan_router(const RouterSetup& setup) {
  if (setup.context_length < 1) {
    return invalid("start the router: the context length that came is " +
                   std::to_string(setup.context_length));
  }
  const OptionSet options =
      TRY_CONTEXT("read the options that the daemon sent: ", option_set_from_json(setup.options));
  ModelText text = TRY(read_model_text(setup.model_path, options.values));

  std::optional<ChatTemplate> chat_template;
  std::string template_error = text.chat_template.empty() ? text.why_no_template : "";
  if (!text.chat_template.empty()) {
    auto compiled = ChatTemplate::compile(text.chat_template);
    if (compiled) {
      chat_template = std::move(*compiled);
    } else {
      template_error = compiled.error().message;
    }
  }
  const std::string stem = std::filesystem::path(setup.model_path).stem().string();
  const PromptLimits limits = prompt_limits(text.tokenizer, setup.context_length);
  std::random_device random;
  ServiceSetup service;
  service.limits.queued_max = options.values.max_queued_requests;
  service.limits.hold_max = options.values.hold_deadline;
  service.limits.running_max = options.values.max_running_requests;
  service.random_seed = (std::uint64_t{random()} << 32U) | random();
  return RouterPlan{
      .options = options.values,
      .model = {.tokenizer = std::move(text.tokenizer),
                .chat_template = std::move(chat_template),
                .name = setup.served_model_name.empty() ? stem : setup.served_model_name,
                .stem = stem,
                .limits = limits,
                .created = unix_seconds()},
      .service = service,
      .template_error = std::move(template_error)};
}

}  // namespace plimsoll
