#include "shared/memory/memory_plan.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "shared/memory/memory_fit.h"
#include "shared/memory/memory_terms.h"
#include "shared/memory/memory_window.h"
#include "shared/memory/plan_changes.h"
#include "shared/memory/plan_problem.h"
#include "shared/memory/plan_refusal.h"
#include "shared/memory/rank_ledger.h"

namespace plimsoll {
namespace {

// Batches above it are rare where KV is short.
constexpr std::int64_t kGraphBatchSmall = 128;

void note_context(const PlanProblem& problem, const Fit& fit, std::vector<std::string>& notes) {
  const FitInputs& in = problem.fit;
  if (in.context_length || fit.step.context_length >= in.model->context_length) return;
  const bool by_total =
      in.max_total_tokens && fit.step.context_length + kKvBlockTokens > *in.max_total_tokens;
  notes.push_back(fmt::format("context-length is {} of the model's {}: what {} allows",
                              grouped(fit.step.context_length), grouped(in.model->context_length),
                              by_total ? "max-total-tokens" : "KV memory"));
}

void note_kv(const PlanProblem& problem, const Fit& fit, std::vector<std::string>& notes) {
  const FitInputs& in = problem.fit;
  const std::int64_t requests = fit.step.max_running_requests;
  const Blocks demand = requests * blocks_of_tokens(fit.step.context_length);
  if (fit.kv_blocks < demand) {
    notes.push_back(fmt::format(
        "KV holds {} of {} running requests at the full context; more when they are shorter",
        fit.kv_blocks / blocks_of_tokens(fit.step.context_length), requests));
  }
  const Blocks named = step_blocks_max(in, fit.step);
  if (fit.kv_blocks == named &&
      named < (in.max_total_tokens ? *in.max_total_tokens / kKvBlockTokens : demand)) {
    notes.push_back(
        fmt::format("KV is {} tokens: as many blocks as a step can name to the other ranks",
                    grouped(named * kKvBlockTokens)));
  }
}

// Blocks are of all layers, so that a prefix can be taken up again from any of its tokens. Servers
// with a pool of its own for such layers keep a window and a chunk of each request.
void note_window(const PlanProblem& problem, const Fit& fit, std::vector<std::string>& notes) {
  const ModelSpec& model = *problem.fit.model;
  if (model.window == 0) return;
  const std::int64_t windowed = model.layers - std::ssize(model.full_layers);
  const Bytes token = problem.fit.ranks.front().kv_token_bytes;
  const Tokens context = fit.step.context_length;
  const Bytes of_windowed = token * windowed / model.layers;
  const Tokens kept = model.window + fit.step.step_tokens_max;
  if (kept >= context) return;  // nobody would keep less
  const Bytes whole = context * token;
  notes.push_back(fmt::format(
      "{} of {} layers look back {} tokens only; their KV is kept for the whole context all the "
      "same: about {} of {} B a token; a request of {} tokens takes {}, where it would be {} with "
      "the last {} tokens of those layers alone",
      windowed, model.layers, grouped(model.window), grouped(of_windowed), grouped(token),
      grouped(context), format_bytes(whole), format_bytes(whole - (context - kept) * of_windowed),
      grouped(kept)));
}

// Graphs for many requests at once take memory that a short KV could use.
void note_graphs(const PlanProblem& problem, const Fit& fit, std::vector<std::string>& notes) {
  const FitInputs& in = problem.fit;
  const std::int64_t layers = in.model->layers;
  const std::int64_t largest = fit.step.cuda_graph_max_bs;
  const Blocks demand = fit.step.max_running_requests * blocks_of_tokens(fit.step.context_length);
  const bool is_learned = std::ranges::any_of(in.overrides, [&](const Override& figure) {
    return figure.term == Term::graphs && figure.holds(fit.step);
  });
  if (largest <= kGraphBatchSmall || fit.kv_blocks >= demand || is_learned) return;
  const Bytes all = graph_bytes(layers, largest, in.tp);
  const Bytes freed = all - graph_bytes(layers, kGraphBatchSmall, in.tp);
  notes.push_back(
      fmt::format("decode graphs up to {} requests take {}: --cuda-graph-max-bs {} frees {}, worth "
                  "{} tokens of "
                  "KV",
                  largest, format_bytes(all), kGraphBatchSmall, format_bytes(freed),
                  grouped(freed / in.ranks.front().kv_token_bytes)));
}

// Requests that share so little KV that most would wait anyway; what they take, graphs and logits,
// fewer would leave to KV.
constexpr Tokens kKvOfARequestLeast = 1024;
constexpr std::int64_t kFewRequests = 8;
void note_requests(const PlanProblem& problem, const Fit& fit, std::vector<std::string>& notes) {
  const std::int64_t requests = fit.step.max_running_requests;
  const Tokens tokens = fit.kv_blocks * kKvBlockTokens;
  const bool is_given = problem.fit.max_running_requests || problem.fit.max_total_tokens ||
                        problem.fit.rule == KvRule::bytes;
  if (is_given || requests <= kFewRequests || tokens / requests >= kKvOfARequestLeast) return;
  FitInputs few = problem.fit;
  few.max_running_requests = kFewRequests;
  const Fit other = decide_fit(few);
  const bool is_worth_it = other.fits && other.kv_blocks >= fit.kv_blocks + fit.kv_blocks / 5;
  if (!is_worth_it) return;
  notes.push_back(
      fmt::format("{} running requests have {} tokens of KV each: --max-running-requests {} leaves "
                  "KV {} tokens instead of {}",
                  requests, grouped(tokens / requests), kFewRequests,
                  grouped(other.kv_blocks * kKvBlockTokens), grouped(tokens)));
}

// What only ranks on devices have.
void note_devices(const PlanProblem& problem, const Fit& fit, std::vector<std::string>& notes) {
  const FitInputs& in = problem.fit;
  const Tokens asked = in.chunked_prefill_size.value_or(in.step_tokens_default);
  if (fit.step.step_tokens_max < asked) {
    notes.push_back(fmt::format("a step has up to {} tokens instead of {}: what memory allows",
                                grouped(fit.step.step_tokens_max), grouped(asked)));
  }
  note_graphs(problem, fit, notes);
  note_requests(problem, fit, notes);
  const auto lacks_total = [](const RankShape& rank) {
    return !rank.device->cuda_total && !rank.device->is_simulated && !rank.device->is_unified;
  };
  if (in.rule == KvRule::utilization && std::ranges::any_of(in.ranks, lacks_total)) {
    notes.emplace_back(
        "gpu-memory-utilization is of the driver's total here; CUDA's, of which vLLM takes its "
        "share, is about 0.6 % less (cuda_total in a description)");
  }
  if (problem.kv_copies > 1.5) {
    notes.push_back(fmt::format(
        "KV of a token is the same on {:.0f} ranks: attention in data parallel would hold about "
        "{:.0f} times as many tokens",
        problem.kv_copies, problem.kv_copies));
  }
  for (const RankShape& rank : in.ranks) {
    const Bytes mapped = peer_mapped_bytes(*rank.device, in.setting);
    if (in.setting.link == DeviceLink::nvlink || !rank.device->bar1 ||
        mapped <= *rank.device->bar1) {
      continue;
    }
    notes.push_back(fmt::format(
        "peers would map {} of rank {}, and its BAR1 window has {}: transfers would go through the "
        "host's memory",
        format_bytes(mapped), rank.index, format_bytes(*rank.device->bar1)));
  }
}

std::vector<std::string> notes_of(const PlanProblem& problem, const Fit& fit) {
  const FitInputs& in = problem.fit;
  std::vector<std::string> notes;
  if (problem.budget.note) notes.push_back(*problem.budget.note);
  note_context(problem, fit, notes);
  const std::int64_t requests = fit.step.max_running_requests;
  if (!in.max_running_requests && requests < in.requests_default) {
    notes.push_back(fmt::format("max-running-requests is {} instead of {}: what KV memory allows",
                                requests, in.requests_default));
  }
  note_kv(problem, fit, notes);
  note_window(problem, fit, notes);
  if (in.chunked_prefill_size && *in.chunked_prefill_size < fit.step.step_tokens_max) {
    notes.push_back(
        fmt::format("a step has up to {} tokens instead of {}: one of each running "
                    "request",
                    fit.step.step_tokens_max, *in.chunked_prefill_size));
  }
  if (in.on_devices) note_devices(problem, fit, notes);
  return notes;
}

// What a rank has of its own, whatever its rows are.
void place_rank(const PlanProblem& problem, std::size_t index, RankPlan& rank) {
  const std::size_t tp = problem.shards.ranks.size();
  const RankPlacement& place = problem.places[index];
  rank.replica = static_cast<std::int64_t>(index / tp);
  rank.rank = static_cast<std::int64_t>(index % tp);
  rank.shard = problem.shards.ranks[index % tp];
  rank.cpus = place.cpus;
  rank.threads = place.threads;
  rank.numa_node = place.numa_node;
  rank.budget = problem.fit.ranks[problem.case_of[index]].budget;
  rank.weight_sharers = problem.fit.ranks[problem.case_of[index]].weight_sharers;
  rank.shared_weights = problem.fit.ranks[problem.case_of[index]].shared_weights;
  if (!problem.fit.on_devices) return;
  const Device& device = problem.devices[index];
  rank.budget = problem.device_budgets[index].limit;
  rank.device = static_cast<std::int64_t>(index);
  rank.device_name = device.name;
  rank.device_uuid = device.uuid;
  rank.device_total = device.memory_total;
  rank.held_by_others = std::max<Bytes>(0, device.memory_total - rank.budget);
  rank.free_before_weights = problem.device_budgets[index].free_before_weights;
}

// Rows of ranks that differ in nothing that terms depend on are made once.
void add_ranks(const PlanProblem& problem, const Fit& fit, MemoryPlan& plan) {
  std::vector<std::vector<PlanRow>> rows_of;
  for (const RankShape& shape : problem.fit.ranks) {
    rows_of.push_back(ledger_rows(problem.fit, shape, fit.step));
    rows_of.back().push_back(kv_row(problem.fit, shape, fit.kv_blocks, problem.kv_type));
  }
  for (std::size_t i = 0; i < problem.places.size(); ++i) {
    RankPlan rank;
    place_rank(problem, i, rank);
    rank.rows = rows_of[problem.case_of[i]];
    plan.ranks.push_back(std::move(rank));
  }
}

KvFigures kv_figures(const PlanProblem& problem, const Fit& fit) {
  KvFigures kv{.blocks = fit.kv_blocks, .tokens = fit.kv_blocks * kKvBlockTokens};
  for (const RankShape& rank : problem.fit.ranks) {
    kv.bytes = std::max(kv.bytes, fit.kv_blocks * rank_block_bytes(rank));
    kv.bytes_per_token = std::max(kv.bytes_per_token, rank.kv_token_bytes);
  }
  kv.copies = problem.kv_copies;
  return kv;
}

std::string device_kind(const Machine& machine) {
  if (machine.devices.empty()) return "cpu";
  return machine.devices.front().is_simulated ? "simulated" : "cuda";
}

}  // namespace

const char* term_name(Term term) {
  constexpr std::array<const char*, kTermCount> kNames = {
      "context",   "collective", "weights",     "absorbed",  "vision",
      "draft",     "tables",     "activations", "workspace", "logits",
      "ep-buffer", "graphs",     "process",     "margin",    "kv"};
  return kNames[static_cast<std::size_t>(term)];
}

Phase term_phase(Term term) {
  switch (term) {
    case Term::context:
    case Term::collective:
    case Term::process:
      return Phase::start;
    case Term::weights:
    case Term::absorbed:
    case Term::vision:
    case Term::draft:
      return Phase::load;
    case Term::graphs:
      return Phase::capture;
    case Term::margin:
    case Term::kv:
      return Phase::serve;
    default:
      return Phase::buffers;
  }
}

const char* phase_name(Phase phase) {
  constexpr std::array<const char*, 5> kNames = {"start", "load", "buffers", "capture", "serve"};
  return kNames[static_cast<std::size_t>(phase)];
}

const char* trust_name(Trust trust) {
  switch (trust) {
    case Trust::computed:
      return "computed";
    case Trust::measured:
      return "measured";
    case Trust::learned:
      return "learned";
    case Trust::assumed:
      return "assumed";
    case Trust::margin:
      return "margin";
  }
  return "margin";
}

Bytes RankPlan::bytes(Term term) const {
  Bytes sum = 0;
  for (const PlanRow& row : rows) sum += row.term == term ? row.bytes : 0;
  return sum;
}

Bytes RankPlan::packed_weights() const {
  return weight_sharers > 1 ? shared_weights : bytes(Term::weights);
}

Bytes RankPlan::total() const {
  Bytes sum = 0;
  for (const PlanRow& row : rows) sum += row.bytes;
  return sum;
}

Result<MemoryPlan> plan_memory(const Machine& machine, const ModelSpec& model,
                               const OptionSet& options, const ModelSpec* draft) {
  const PlanProblem problem = TRY(make_problem(machine, model, options.values, draft));
  const Fit decided = decide_fit(problem.fit);
  // What is refused is refused as low as everything goes, and shown so.
  const Fit fit = decided.fits ? decided : least_fit(problem.fit);
  MemoryPlan plan;
  plan.tp = options.values.tp;
  plan.dp = options.values.dp;
  plan.devices = device_kind(machine);
  plan.machine = machine.name;
  plan.decisions = {
      .context_length = fit.step.context_length,
      .context_length_min = problem.fit.context_length ? 0 : context_floor(problem.fit),
      .context_length_wanted = context_wanted(problem.fit),
      .max_running_requests = fit.step.max_running_requests,
      .step_tokens_max = fit.step.step_tokens_max,
      .logit_rows_max = fit.step.logit_rows_max,
      .cuda_graph_max_bs = fit.step.cuda_graph_max_bs,
      .kv_blocks = fit.kv_blocks,
      .kv_type = problem.kv_type,
      .notes = {}};
  plan.assumptions = model.assumptions;
  plan.kv = kv_figures(problem, fit);
  add_ranks(problem, fit, plan);
  for (const RankPlan& rank : plan.ranks) plan.budget_total += rank.budget;
  plan.budget_source =
      problem.fit.on_devices ? problem.device_budgets.front().source : problem.budget.source;
  if (problem.fit.rule != KvRule::demand) plan.auto_choice = find_auto_choice(problem.fit);
  if (fit.fits) {
    plan.decisions.notes = notes_of(problem, fit);
    if (draft != nullptr && draft->vocab != model.vocab) {
      plan.decisions.notes.push_back(
          fmt::format("the draft model's vocabulary has {} tokens and the model's {}: only a draft "
                      "that was made for this model can do that",
                      grouped(draft->vocab), grouped(model.vocab)));
    }
  } else {
    const PlanQuestion question{
        .machine = machine, .model = model, .options = options, .draft = draft};
    plan.refusal = does_not_fit(refusal_message(question, problem, find_window(question, problem)));
  }
  return plan;
}

Result<MemoryWindow> plan_window(const Machine& machine, const ModelSpec& model,
                                 const OptionSet& options, const ModelSpec* draft) {
  const PlanProblem problem = TRY(make_problem(machine, model, options.values, draft));
  return find_window({.machine = machine, .model = model, .options = options, .draft = draft},
                     problem);
}

}  // namespace plimsoll
