#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/memory_window.h"
#include "shared/memory/plan_changes.h"
#include "shared/memory/plan_refusal.h"
#include "shared/memory/rank_ledger.h"
#include "shared/memory/step_message.h"
#include "shared/memory/window_text.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

std::vector<std::string> option_lines(const PlanProblem& problem, const OptionSet& options,
                                      const Fit& fit) {
  const FitInputs& in = problem.fit;
  const MemoryBudget& budget = problem.budget;
  const auto decided = [](bool is_auto, const std::string& value) {
    return is_auto ? fmt::format(", lowered to {}", value) : "";
  };
  const std::int64_t ranks = options.values.tp * options.values.dp;
  std::vector<std::string> lines;
  lines.push_back(
      option_line(options, "device-memory",
                  options.values.device_memory
                      ? ""
                      : fmt::format(", {}: {} of {} over {} rank{}", budget.source,
                                    format_bytes(budget.available), budget.available_source, ranks,
                                    ranks == 1 ? "" : "s")));
  for (const std::string_view name :
       {"mem-fraction-static", "gpu-memory-utilization", "kv-cache-bytes"}) {
    if (options.origin(name).source != Source::built_in) {
      lines.push_back(option_line(options, name, ""));
    }
  }
  lines.push_back(option_line(
      options, "context-length",
      decided(!in.context_length, fmt::format("{} tokens", grouped(fit.step.context_length)))));
  lines.push_back(option_line(
      options, "max-running-requests",
      decided(!in.max_running_requests, fmt::format("{}", fit.step.max_running_requests))));
  lines.push_back(option_line(
      options, "chunked-prefill-size",
      in.chunked_prefill_size ? "" : fmt::format(", at most {}", fit.step.step_tokens_max)));
  if (in.max_total_tokens) lines.push_back(option_line(options, "max-total-tokens", ""));
  lines.push_back(option_line(options, "tp", ""));
  lines.push_back(option_line(options, "dp", ""));
  return lines;
}

std::vector<std::string> remedies(const PlanQuestion& question, const PlanProblem& problem,
                                  const MemoryWindow& window, Bytes needed) {
  const MemoryBudget& budget = problem.budget;
  std::vector<std::string> lines;
  for (const std::string_view name :
       {"mem-fraction-static", "gpu-memory-utilization", "kv-cache-bytes"}) {
    const OptionWindow* open = window.open(name);
    if (open == nullptr) continue;
    lines.push_back(fmt::format("  --{} {}", name, window_range(*open)));
  }
  if (const OptionWindow* memory = window.open("device-memory")) {
    lines.push_back(fmt::format("  --device-memory {}", window_range(*memory)));
  }
  for (const std::string_view name :
       {"context-length", "max-running-requests", "chunked-prefill-size", "max-total-tokens"}) {
    const OptionWindow* open = window.open(name);
    if (open != nullptr) lines.push_back(fmt::format("  --{} {} or less", name, open->high));
  }
  for (const std::string_view name : {"tp", "dp"}) {
    const OptionWindow* open = window.open(name);
    if (open != nullptr) lines.push_back(fmt::format("  --{} {}", name, window_range(*open)));
  }
  for (std::string& line : find_changes(question, problem, window)) {
    lines.push_back(std::move(line));
  }
  if (!lines.empty()) {
    lines.insert(lines.begin(),
                 lines.size() == 1 ? "What would work:" : "Each of these alone would work:");
    return lines;
  }
  if (needed > budget.per_rank_max) {
    return {
        fmt::format("No one option makes it fit: a rank needs {} and there is {} for each "
                    "({} of {}). Use a smaller model, or free memory.",
                    format_bytes(needed), format_bytes(budget.per_rank_max),
                    format_bytes(budget.available), budget.available_source)};
  }
  return {"No one option makes it fit; change several of them."};
}

// max-total-tokens holds less than one request of the context that was asked for.
std::string total_too_small(const PlanQuestion& question, const PlanProblem& problem,
                            const Fit& fit, const MemoryWindow& window) {
  const Blocks needed = blocks_of_tokens(fit.step.context_length);
  std::vector<std::string> lines = {fmt::format(
      "the plan does not fit: max-total-tokens holds {} blocks of {} tokens, and one request of {} "
      "tokens needs {}.",
      fit.kv_blocks, kKvBlockTokens, grouped(fit.step.context_length), needed)};
  for (const std::string_view name : {"max-total-tokens", "context-length"}) {
    lines.push_back(option_line(question.options, name, ""));
  }
  std::vector<std::string> would_work;
  if (const OptionWindow* total = window.open("max-total-tokens")) {
    would_work.push_back(fmt::format("  --max-total-tokens {}", window_range(*total)));
  }
  if (const OptionWindow* context = window.open("context-length")) {
    would_work.push_back(fmt::format("  --context-length {} or less", context->high));
  }
  if (would_work.empty()) {
    const Bytes bytes = neediest_rank(problem.fit, fit).bytes;
    would_work = remedies(question, problem, window, bytes);
  } else {
    lines.emplace_back(would_work.size() == 1 ? "What would work:"
                                              : "Each of these alone would work:");
  }
  for (std::string& line : would_work) lines.push_back(std::move(line));
  return join(lines, "\n");
}

// What KV would be without the option that sizes it, and the share of memory that this comes to.
std::optional<std::string> auto_line(const PlanQuestion& question, const FitInputs& in) {
  Options plain = question.options.values;
  plain.mem_fraction_static.reset();
  plain.gpu_memory_utilization.reset();
  plain.kv_cache_bytes.reset();
  const Result<PlanProblem> problem =
      make_problem(question.machine, question.model, plain, nullptr);
  if (!problem) return std::nullopt;
  const std::optional<AutoChoice> choice = find_auto_choice(problem->fit);
  if (!choice) return std::nullopt;
  const Fit fit = decide_fit(problem->fit);
  Bytes filled = 0;
  for (const RankShape& rank : problem->fit.ranks) {
    filled = std::max(filled, fit.kv_blocks * rank_block_bytes(rank) +
                                  static_bytes(ledger_bytes(problem->fit, rank, fit.step)));
  }
  std::string line = fmt::format("  auto would choose KV of {} ({} tokens, context {})",
                                 format_bytes(choice->kv_bytes), grouped(choice->kv_tokens),
                                 grouped(choice->context_length));
  if (in.free_before_weights > 0 && filled <= in.free_before_weights) {
    line += fmt::format(": mem-fraction-static {}",
                        format_fraction(fraction_of(filled, in.free_before_weights)));
  }
  return line;
}

// What an option gives for KV is less than one request needs.
std::string rule_too_small(const PlanQuestion& question, const PlanProblem& problem, const Fit& fit,
                           const MemoryWindow& window) {
  const OptionSet& options = question.options;
  const FitInputs& in = problem.fit;
  Bytes least = kv_bytes_by_rule(in, in.ranks.front(), fit.step);
  const RankShape* tightest = &in.ranks.front();
  for (const RankShape& rank : in.ranks) {
    const Bytes bytes = kv_bytes_by_rule(in, rank, fit.step);
    if (bytes / rank_block_bytes(rank) >= least / rank_block_bytes(*tightest)) continue;
    least = bytes;
    tightest = &rank;
  }
  std::vector<std::string> lines = {fmt::format(
      "the plan does not fit: {} leaves {} for KV on rank {}, and one request of {} tokens needs "
      "{}; {}",
      rule_text(options, in.rule), format_bytes(least), tightest->index,
      grouped(fit.step.context_length),
      format_bytes(blocks_of_tokens(fit.step.context_length) * rank_block_bytes(*tightest)),
      direction(window, in.rule, "raise"))};
  for (std::string& line : rule_arithmetic(in, *tightest, fit.step)) {
    lines.push_back(std::move(line));
  }
  lines.push_back(trust_line(ledger_rows(in, *tightest, fit.step)));
  for (std::string& line : option_lines(problem, options, fit)) lines.push_back(std::move(line));
  for (std::string& line : other_windows(window, "")) lines.push_back(std::move(line));
  if (const auto line = auto_line(question, in)) lines.push_back(*line);
  const Bytes needed = neediest_rank(in, fit).bytes;
  for (std::string& line : remedies(question, problem, window, needed))
    lines.push_back(std::move(line));
  return join(lines, "\n");
}

// The ring between the ranks does not grow with what a step holds.
std::string ring_too_small(const PlanQuestion& question, const PlanProblem& problem, const Fit& fit,
                           const MemoryWindow& window) {
  const StepShape& step = fit.step;
  std::vector<std::string> lines = {fmt::format(
      "the plan does not fit: a step of {} tokens, {} requests and {} KV blocks (one request of {} "
      "tokens) takes {} in the ring between {} ranks, which has {}",
      step.step_tokens_max, step.max_running_requests, blocks_of_tokens(step.context_length),
      grouped(step.context_length),
      format_exact_bytes(kRingLengthBytes +
                         step_message_bytes(step.step_tokens_max, step.max_running_requests,
                                            blocks_of_tokens(step.context_length),
                                            step.logit_rows_max)),
      problem.fit.tp, format_exact_bytes(kStepRingBytesDefault))};
  const Bytes needed = neediest_rank(problem.fit, fit).bytes;
  for (std::string& line : remedies(question, problem, window, needed))
    lines.push_back(std::move(line));
  return join(lines, "\n");
}

std::string kv_purpose(const OptionSet& options, const FitInputs& in, const Fit& fit) {
  if (in.rule != KvRule::demand) return "what " + rule_text(options, in.rule) + " gives";
  if (in.max_total_tokens) return fmt::format("{} tokens", grouped(*in.max_total_tokens));
  return fmt::format("one request of {} tokens", grouped(fit.step.context_length));
}

}  // namespace

std::string cpu_refusal(const PlanQuestion& question, const PlanProblem& problem,
                        const MemoryWindow& window) {
  const FitInputs& in = problem.fit;
  const OptionSet& options = question.options;
  const Fit fit = least_fit(in);
  const Blocks one = blocks_of_tokens(fit.step.context_length);
  if (step_blocks_max(in, fit.step) < one) {
    return ring_too_small(question, problem, fit, window);
  }
  if (!fit.holds_one && in.rule != KvRule::demand) {
    return rule_too_small(question, problem, fit, window);
  }
  if (fit.kv_blocks < one) return total_too_small(question, problem, fit, window);
  const NeediestRank neediest = neediest_rank(in, fit);
  const RankShape& rank = in.ranks[neediest.index];
  std::vector<PlanRow> rows = ledger_rows(in, rank, fit.step);
  rows.push_back(kv_row(in, rank, fit.kv_blocks, problem.kv_type));
  const PlanRow& binding =
      *std::max_element(rows.begin(), rows.end(),
                        [](const PlanRow& a, const PlanRow& b) { return a.bytes < b.bytes; });
  const Bytes kv = rows.back().bytes;
  const bool by_rule = in.rule != KvRule::demand && neediest.bytes - kv <= rank.budget;
  std::vector<std::string> lines = {
      by_rule ? fmt::format("the plan does not fit: {} gives KV {} on rank {}, and then {} are "
                            "needed of {} ({}); {}",
                            rule_text(options, in.rule), format_bytes(kv), rank.index,
                            format_bytes(neediest.bytes), format_bytes(rank.budget),
                            problem.budget.source, direction(window, in.rule, "lower"))
              : fmt::format("the plan does not fit: rank {} needs at least {}, and its budget is "
                            "{} ({})",
                            rank.index, format_bytes(neediest.bytes), format_bytes(rank.budget),
                            problem.budget.source),
      fmt::format("  {} = {}", sum_text(rows), format_bytes(neediest.bytes)),
      fmt::format("  KV is for {}", kv_purpose(options, in, fit)),
      trust_line(rows),
      fmt::format("  binding: {}, {} ({}: {})", term_name(binding.term),
                  format_bytes(binding.bytes), trust_name(binding.trust), binding.formula),
      "Options that take part:"};
  for (std::string& line : option_lines(problem, options, fit)) lines.push_back(std::move(line));
  for (std::string& line : other_windows(window, "")) lines.push_back(std::move(line));
  for (std::string& line : remedies(question, problem, window, neediest.bytes)) {
    lines.push_back(std::move(line));
  }
  return join(lines, "\n");
}

}  // namespace plimsoll
