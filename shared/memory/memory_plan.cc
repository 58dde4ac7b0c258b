#include "shared/memory/memory_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "shared/memory/memory_budget.h"
#include "shared/memory/memory_fit.h"
#include "shared/memory/memory_terms.h"
#include "shared/memory/memory_window.h"
#include "shared/memory/rank_placement.h"

namespace plimsoll {
namespace {

// What the plan is computed from.
struct Problem {
  FitInputs fit;
  MemoryBudget budget;
  std::vector<RankPlacement> places;  // replica by replica
};

Status check_model(const ModelSpec& model, const Options& options) {
  if (!options.context_length || *options.context_length <= model.context_length) return {};
  return invalid(
      fmt::format("context-length: {} is more than the {} tokens that this model was "
                  "trained for",
                  grouped(*options.context_length), grouped(model.context_length)));
}

Result<Problem> make_problem(const Machine& machine, const ModelSpec& model,
                             const Options& options) {
  if (!machine.devices.empty()) return invalid("devices: plans for GPUs are not there yet");
  TRY(check_model(model, options));
  const ShardPlan shards = TRY(plan_shards(model, options.tp));
  Problem problem;
  problem.budget = decide_budget(machine, options);
  problem.places = place_ranks(machine, options.tp * options.dp, options.threads);
  problem.fit = {.model = &model,
                 .ranks = {},
                 .budget = problem.budget.per_rank,
                 .context_length = options.context_length,
                 .max_total_tokens = options.max_total_tokens,
                 .max_running_requests = options.max_running_requests,
                 .chunked_prefill_size = options.chunked_prefill_size};
  for (const RankShard& shard : shards.ranks) {
    problem.fit.ranks.push_back({.shard = shard,
                                 .weights = rank_weights(model, shard).bytes(),
                                 .threads = problem.places.front().threads,
                                 .leader = problem.fit.ranks.empty()});
  }
  return problem;
}

std::vector<std::string> notes_of(const Problem& problem, const Fit& fit) {
  const FitInputs& in = problem.fit;
  std::vector<std::string> notes;
  if (problem.budget.note) notes.push_back(*problem.budget.note);
  if (!in.context_length && fit.step.context_length < in.model->context_length) {
    const bool by_total =
        in.max_total_tokens && fit.step.context_length + kKvBlockTokens > *in.max_total_tokens;
    notes.push_back(fmt::format("context-length is {} of the model's {}: what {} allows",
                                grouped(fit.step.context_length), grouped(in.model->context_length),
                                by_total ? "max-total-tokens" : "KV memory"));
  }
  const std::int64_t requests = fit.step.max_running_requests;
  if (!in.max_running_requests && requests < kRunningRequestsDefault) {
    notes.push_back(fmt::format("max-running-requests is {} instead of {}: what KV memory allows",
                                requests, kRunningRequestsDefault));
  }
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
  if (in.chunked_prefill_size && *in.chunked_prefill_size < fit.step.step_tokens_max) {
    notes.push_back(
        fmt::format("a step has up to {} tokens instead of {}: one of each running "
                    "request",
                    fit.step.step_tokens_max, *in.chunked_prefill_size));
  }
  return notes;
}

RankPlan make_rank(const Problem& problem, const Fit& fit, std::size_t index) {
  const std::size_t tp = problem.fit.ranks.size();
  const RankShape& shape = problem.fit.ranks[index % tp];
  const RankPlacement& place = problem.places[index];
  RankPlan rank;
  rank.replica = static_cast<std::int64_t>(index / tp);
  rank.rank = static_cast<std::int64_t>(index % tp);
  rank.shard = shape.shard;
  rank.cpus = place.cpus;
  rank.threads = place.threads;
  rank.numa_node = place.numa_node;
  rank.budget = problem.budget.per_rank;
  rank.rows = fixed_rows(
      {.model = *problem.fit.model, .rank = shape, .step = fit.step, .tp = problem.fit.tp()});
  rank.rows.push_back(kv_row(*problem.fit.model, shape.shard, fit.kv_blocks));
  return rank;
}

}  // namespace

const char* term_name(Term term) {
  switch (term) {
    case Term::weights:
      return "weights";
    case Term::tables:
      return "tables";
    case Term::activations:
      return "activations";
    case Term::workspace:
      return "workspace";
    case Term::logits:
      return "logits";
    case Term::collective:
      return "collective";
    case Term::process:
      return "process";
    case Term::kv:
      return "kv";
  }
  return "kv";
}

const char* trust_name(Trust trust) {
  switch (trust) {
    case Trust::computed:
      return "computed";
    case Trust::measured:
      return "measured";
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

Bytes RankPlan::total() const {
  Bytes sum = 0;
  for (const PlanRow& row : rows) sum += row.bytes;
  return sum;
}

Result<MemoryPlan> plan_memory(const Machine& machine, const ModelSpec& model,
                               const OptionSet& options) {
  const Problem problem = TRY(make_problem(machine, model, options.values));
  const Fit fit = decide_fit(problem.fit);
  MemoryPlan plan;
  plan.tp = options.values.tp;
  plan.dp = options.values.dp;
  plan.budget_total = problem.budget.per_rank * plan.tp * plan.dp;
  plan.budget_source = problem.budget.source;
  plan.decisions = {.context_length = fit.step.context_length,
                    .max_running_requests = fit.step.max_running_requests,
                    .step_tokens_max = fit.step.step_tokens_max,
                    .logit_rows_max = fit.step.logit_rows_max,
                    .kv_blocks = fit.kv_blocks,
                    .notes = {}};
  for (std::size_t i = 0; i < problem.places.size(); ++i) {
    plan.ranks.push_back(make_rank(problem, fit, i));
  }
  if (fit.fits) {
    plan.decisions.notes = notes_of(problem, fit);
  } else {
    plan.refusal = does_not_fit(refusal_message(problem.fit, problem.budget, options));
  }
  return plan;
}

Result<MemoryWindow> plan_window(const Machine& machine, const ModelSpec& model,
                                 const OptionSet& options) {
  const Problem problem = TRY(make_problem(machine, model, options.values));
  return find_window(problem.fit, problem.budget);
}

}  // namespace plimsoll
