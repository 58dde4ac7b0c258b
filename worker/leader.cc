#include "worker/leader.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "kernels/backend.h"
#include "shared/base/check.h"
#include "shared/base/log.h"
#include "shared/control/codec.h"

namespace plimsoll {
namespace {

// Between two steps, so that no flood of messages keeps running requests from their tokens, or the
// rank from its answer to a ping.
constexpr int kMessagesATurn = 256;

TokenEvent error_event(std::uint64_t id, const Error& error) {
  TokenEvent event;
  event.id = id;
  event.finish = "error";
  event.error_code = code_name(error.code);
  event.error = error.message;
  return event;
}

TokenEvent finish_event(std::uint64_t id, const char* finish) {
  TokenEvent event;
  event.id = id;
  event.finish = finish;
  return event;
}

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::none:
      return "";
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::error:
      return "error";
  }
  return "";
}

}  // namespace

Leader::Leader(Parts parts)
    : parts_(std::move(parts)),
      scheduler_(parts_.limits),
      budget_(parts_.budget),
      sampler_(parts_.limits.vocab) {
  message_.reserve(static_cast<std::size_t>(step_bytes_max(parts_.limits.step)));
}

Status Leader::warm_up() {
  const StepLimits& limits = parts_.limits.step;
  const Tokens rows = std::min({kKvBlockTokens, limits.rows_max, parts_.limits.context_length});
  StepPlan plan;
  plan.ids.assign(static_cast<std::size_t>(rows), 0);
  plan.sequences = {{.row = 0,
                     .tokens = static_cast<std::int32_t>(rows),
                     .position = 0,
                     .blocks_begin = 0,
                     .blocks_count = 1}};
  plan.blocks = {0};
  plan.logit_rows = {static_cast<std::int32_t>(rows - 1)};
  const TimePoint begin = now();
  TRY(run_on_all_ranks(plan));
  budget_.observe(rows, 0, now() - begin);
  return {};
}

Result<StepRunner::Sampled> Leader::run_on_all_ranks(const StepPlan& plan) {
  TRY(check_step(plan, parts_.limits.step));
  if (parts_.publisher != nullptr) {
    encode_step(StepKind::run, plan, message_);
    TRY(parts_.publisher->publish(message_));
  }
  return parts_.engine->run(plan, samples_);
}

Status Leader::stop() {
  if (parts_.publisher == nullptr) return {};
  encode_step(StepKind::stop, StepPlan{}, message_);
  TRY(parts_.publisher->publish(message_));
  return parts_.collective->barrier();
}

bool Leader::take_requests() {
  bool any = false;
  for (int i = 0; i < kMessagesATurn; ++i) {
    const std::optional<Received> received = parts_.requests.receive();
    any |= received || parts_.requests.has_more();
    if (!received) break;
    if (const auto* generate = std::get_if<Generate>(&received->message)) {
      handle(received->peer, *generate);
    } else if (const auto* cancel = std::get_if<Cancel>(&received->message)) {
      handle(received->peer, *cancel);
    } else {
      parts_.requests.refuse(received->peer,
                             fmt::format("'{}' is neither a request nor a cancellation",
                                         message_type(received->message)));
    }
  }
  while (const std::optional<std::string> line = parts_.requests.take_refusal()) {
    LOG_WARNING("request socket: {}", *line);
  }
  return any;
}

void Leader::handle(const std::string& peer, const Generate& generate) {
  const auto refuse = [&](const Error& error) { send(peer, {error_event(generate.id, error)}); };
  if (refusal_) return refuse(unavailable(*refusal_));
  if (sequences_.contains({peer, generate.id})) {
    return refuse(invalid(fmt::format("request {} is running already", generate.id)));
  }
  if (const Status status = check_sampling(generate.sampling); !status) {
    return refuse(status.error());
  }
  const Result<Scheduler::Added> added =
      scheduler_.add(generate.prompt, generate.sampling,
                     {.emitted = generate.emitted, .prompt_reported = generate.prompt_reported});
  if (!added) return refuse(added.error());
  if (added->done) return send(peer, {finish_event(generate.id, "length")});
  clients_[added->id] = {peer, generate.id};
  sequences_[{peer, generate.id}] = added->id;
}

void Leader::handle(const std::string& peer, const Cancel& cancel) {
  const auto found = sequences_.find({peer, cancel.id});
  if (found == sequences_.end()) return;  // it ended before the cancel came
  CHECK(scheduler_.cancel(found->second));
  clients_.erase(found->second);
  sequences_.erase(found);
  send(peer, {finish_event(cancel.id, "cancelled")});
}

void Leader::send(const std::string& peer, std::vector<TokenEvent> events) {
  StepTokens message;
  message.events = std::move(events);
  message.running = scheduler_.running();
  message.waiting = scheduler_.waiting();
  message.kv_blocks_used = scheduler_.blocks_used();
  message.kv_blocks = scheduler_.blocks();
  if (const Status sent = parts_.requests.send(peer, message); !sent) {
    LOG_WARNING("a router is gone, its requests are cancelled: {}", sent.error().message);
    forget_peer(peer);
  }
}

void Leader::forget_peer(const std::string& peer) {
  std::erase_if(sequences_, [&](const auto& item) {
    if (item.first.first != peer) return false;
    CHECK(scheduler_.cancel(item.second));
    clients_.erase(item.second);
    return true;
  });
}

void Leader::abandon_all(const Error& why) {
  std::map<std::string, std::vector<TokenEvent>> events;
  for (const auto& [sequence, client] : clients_) {
    CHECK(scheduler_.cancel(sequence));
    events[client.peer].push_back(error_event(client.id, why));
  }
  clients_.clear();
  sequences_.clear();
  for (auto& [peer, list] : events) send(peer, std::move(list));
}

void Leader::set_step_time_max(Duration step_time_max) {
  parts_.budget.step_time_max = step_time_max;
  budget_.set_step_time_max(step_time_max);
}

Status Leader::step() {
  const TimePoint begin = now();
  std::vector<Output> outputs;
  std::vector<Ended> ended;
  const StepPlan* plan = &scheduler_.plan_step(budget_.rows());
  CHECK(!plan->empty());
  for (std::int64_t steps = 1; plan != nullptr; ++steps) {
    TRY(run_step(*plan, outputs, ended));
    const bool goes_on =
        steps < parts_.decode_steps_max && now() - begin < parts_.budget.step_time_max;
    plan = goes_on ? scheduler_.plan_next_decode() : nullptr;
  }
  deliver(outputs, ended);
  return {};
}

Status Leader::run_step(const StepPlan& plan, std::vector<Output>& outputs,
                        std::vector<Ended>& ended) {
  const TimePoint begin = now();
  choose_samples();
  const StepRunner::Sampled sampled = TRY(run_on_all_ranks(plan));
  std::vector<StepOutcome> outcomes(scheduler_.entries().size());
  outputs.resize(outcomes.size());
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const StepEntry& entry = scheduler_.entries()[i];
    Output& output = outputs[i];
    output.sequence = entry.sequence->id;
    if (const Status read = read_entry(i, sampled, output.event, outcomes[i]); !read) {
      output.error = read.error();
      outcomes[i].failed = true;
    }
    count(entry, output.event);
  }
  scheduler_.finish_step(outcomes, ended);
  ++counters_.steps;
  const Tokens of_prompts = scheduler_.prompt_rows();
  budget_.observe(of_prompts, plan.rows() - of_prompts, now() - begin);
  return {};
}

// Of a step whose rows all give one token and nothing else: a device may draw them.
void Leader::choose_samples() {
  samples_.clear();
  for (const StepEntry& entry : scheduler_.entries()) {
    const Sequence& sequence = *entry.sequence;
    const bool is_plain = entry.samples && entry.logits_count == 1 &&
                          sequence.sampling.logprobs < 0 &&
                          !is_penalised(sequence.sampling, sequence.output());
    if (!is_plain) return samples_.clear();
    CHECK(entry.logits_begin == std::ssize(samples_));
    samples_.push_back(row_sample(sequence.sampling, sequence.size(), parts_.limits.vocab));
  }
}

void Leader::count(const StepEntry& entry, TokenEvent& event) {
  const Sequence& sequence = *entry.sequence;
  if (entry.samples) ++counters_.generated_tokens;
  const bool prompt_done = entry.position + entry.rows == sequence.target();
  if (!prompt_done || sequence.generated() > 0) return;
  counters_.prompt_tokens += sequence.prompt_tokens;
  counters_.cached_tokens += sequence.cached;
  event.cached_tokens = sequence.cached;
}

void Leader::deliver(std::vector<Output>& outputs, const std::vector<Ended>& ended) {
  std::map<std::string, std::vector<TokenEvent>> events;
  auto end = ended.begin();
  for (Output& output : outputs) {
    const auto client = clients_.find(output.sequence);
    CHECK(client != clients_.end());
    TokenEvent& event = output.event;
    event.id = client->second.id;
    const std::string peer = client->second.peer;
    if (end != ended.end() && end->id == output.sequence) {
      event.finish = finish_name(end->finish);
      sequences_.erase({peer, event.id});
      clients_.erase(client);
      ++end;
    }
    const std::uint64_t id = event.id;
    if (output.error) event.finish.clear();  // told apart, after what was well
    const bool says_something =
        !event.tokens.empty() || !event.prompt_logprobs.empty() || !event.finish.empty();
    if (says_something) events[peer].push_back(std::move(event));
    if (output.error) events[peer].push_back(error_event(id, *output.error));
  }
  for (auto& [peer, list] : events) send(peer, std::move(list));
}

std::span<const float> Leader::logits_row(TensorView logits, std::int64_t row) const {
  return {logits.row(row), static_cast<std::size_t>(parts_.limits.vocab)};
}

Status Leader::read_entry(std::size_t index, const StepRunner::Sampled& sampled, TokenEvent& event,
                          StepOutcome& outcome) {
  const TensorView& logits = sampled.logits;
  const StepEntry& entry = scheduler_.entries()[index];
  const Sequence& sequence = *entry.sequence;
  const std::int64_t prompt_rows = entry.logits_count - (entry.samples ? 1 : 0);
  for (std::int64_t i = 0; i < prompt_rows; ++i) {
    // Reported rows follow each other without a gap, so the next is the one after the last.
    const auto next = static_cast<std::size_t>(sequence.rows_reported + i + 1);
    event.prompt_logprobs.push_back(
        TRY(sampler_.logprob(logits_row(logits, entry.logits_begin + i), sequence.tokens[next],
                             sequence.sampling.logprobs)));
  }
  if (!entry.samples) return {};
  if (!sampled.tokens.empty()) {
    outcome.token = sampled.tokens[static_cast<std::size_t>(entry.logits_begin)];
    if (outcome.token >= 0) {
      event.tokens.push_back(outcome.token);
      return {};
    }
  }
  const auto row = logits_row(logits, entry.logits_begin + prompt_rows);
  outcome.token = TRY(sampler_.sample(
      row,
      {.sampling = sequence.sampling, .output = sequence.output(), .position = sequence.size()}));
  if (sequence.sampling.logprobs >= 0) {
    event.logprobs.push_back(TRY(sampler_.logprob(row, outcome.token, sequence.sampling.logprobs)));
  }
  event.tokens.push_back(outcome.token);
  return {};
}

}  // namespace plimsoll
