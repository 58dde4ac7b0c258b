#include "router/api/completions.h"

#include <utility>

#include <fmt/core.h>

#include "router/api/request_fields.h"

namespace plimsoll {
namespace {

constexpr std::size_t kChoicesMax = 256;  // of one request: each holds a copy of its prompt

Refusal find_prompts(ModelContext& model, const RequestFields& fields, bool chat,
                     std::vector<Prompt>& prompts) {
  if (!chat) return completion_prompts(fields, model.tokenizer, model.limits, prompts);
  Prompt prompt;
  Refusal refusal =
      chat_prompt(fields, model.tokenizer, model.template_or_null(), model.limits, prompt);
  prompts.push_back(std::move(prompt));
  return refusal;
}

Refusal check_stop_ids(const ModelContext& model, const std::vector<std::int64_t>& ids) {
  for (std::int64_t id : ids) {
    if (id < model.tokenizer.vocab_size()) continue;
    return bad_field("stop_token_ids", fmt::format("{} is no token id; they are from 0 to {}", id,
                                                   model.tokenizer.vocab_size() - 1));
  }
  return {};
}

Refusal check_choices(const RequestFields& fields, std::size_t prompts) {
  const std::size_t choices = prompts * static_cast<std::size_t>(fields.n);
  if (choices <= kChoicesMax) return {};
  return bad_field("n", fmt::format("{} prompts with n = {} make {} choices; a request has at most "
                                    "{}",
                                    prompts, fields.n, choices, kChoicesMax));
}

// All that can be refused before the work on the prompts.
Refusal check_room(const CompletionInputs& inputs, const RequestFields& fields) {
  std::size_t prompts = 1;
  if (!inputs.chat) {
    if (Refusal refusal = check_batch(fields, prompts)) return refusal;
  }
  if (Refusal refusal = check_choices(fields, prompts)) return refusal;
  const Status admitted = inputs.admit(static_cast<std::int64_t>(prompts) * fields.n);
  return admitted ? Refusal{} : api_error(admitted.error());
}

Sampling sampling_of(const ModelContext& model, const RequestFields& fields) {
  Sampling sampling = fields.sampling;
  sampling.logprobs = fields.logprobs ? fields.top_logprobs : -1;
  sampling.prompt_logprobs = fields.echo && fields.logprobs;
  if (!sampling.ignore_eos) {
    const auto& ends = model.tokenizer.stop_ids();
    sampling.stop_ids.insert(sampling.stop_ids.end(), ends.begin(), ends.end());
  }
  return sampling;
}

void fill_job(const ModelContext& model, const RequestFields& fields,
              const CompletionInputs& inputs, JobSetup& job) {
  job.stream = fields.stream;
  job.echo = fields.echo;
  job.n = fields.n;
  job.stop = fields.stop;
  job.head = {.chat = inputs.chat,
              .id = inputs.id,
              .created = inputs.created,
              .model = model.name,
              .include_usage = fields.include_usage && fields.stream,
              .scores = fields.logprobs};
}

}  // namespace

Refusal plan_completion(ModelContext& model, const CompletionInputs& inputs, CompletionPlan& plan) {
  Json body;
  RequestFields fields;
  if (Refusal refusal = read_body(*inputs.request, body)) return refusal;
  if (Refusal refusal = read_fields(body, inputs.chat ? Body::chat : Body::completion, fields)) {
    return refusal;
  }
  if (Refusal refusal = check_model(model, fields.model)) return refusal;
  if (Refusal refusal = check_stop_ids(model, fields.sampling.stop_ids)) return refusal;
  fill_job(model, fields, inputs, plan.job);
  plan.unknown_fields = fields.unknown;
  if (Refusal refusal = check_room(inputs, fields)) return refusal;
  if (Refusal refusal = find_prompts(model, fields, inputs.chat, plan.job.prompts)) return refusal;
  const Sampling sampling = sampling_of(model, fields);
  plan.job.stop_ids = sampling.stop_ids;
  for (const Prompt& prompt : plan.job.prompts) {
    TokenBudget budget;
    if (Refusal refusal =
            token_budget(fields, inputs.chat, prompt.ids.size(), model.limits, budget)) {
      return refusal;
    }
    for (std::int64_t sample = 0; sample < fields.n; ++sample) {
      Generate generate;
      generate.prompt = prompt.ids;
      generate.sampling = sampling;
      generate.sampling.max_tokens = budget.max_tokens;
      generate.sampling.seed =
          fields.seed.value_or(inputs.random_seed) + static_cast<std::uint64_t>(sample);
      plan.generates.push_back(std::move(generate));
    }
  }
  return {};
}

}  // namespace plimsoll
