#include "shared/memory/memory_window.h"

#include <algorithm>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/search.h"
#include "shared/memory/step_message.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

// The largest value that fits when it is put into a copy of the inputs; unset where none does.
template <typename Set>
std::optional<std::int64_t> largest_fitting(const FitInputs& in, std::int64_t first,
                                            std::int64_t last, Set set) {
  const auto fits = [&](std::int64_t value) {
    FitInputs changed = in;
    set(changed, value);
    return decide_fit(changed).fits;
  };
  if (last < first || !fits(first)) return std::nullopt;
  return largest_that(first, last, fits);
}

struct NeediestRank {
  std::size_t index = 0;
  Bytes bytes = 0;
};

NeediestRank neediest_rank(const FitInputs& in, const Fit& fit) {
  NeediestRank neediest;
  for (std::size_t i = 0; i < in.ranks.size(); ++i) {
    const Bytes bytes = rank_bytes(in, in.ranks[i], fit);
    if (bytes > neediest.bytes) neediest = {i, bytes};
  }
  return neediest;
}

// "device-memory = 64MiB (flag --device-memory)".
std::string option_line(const OptionSet& options, std::string_view name, std::string_view decided) {
  const OptionRow& row = *find_option(name);
  const Origin origin = options.origin(name);
  return fmt::format("  {} = {}{} ({}{}{})", name, option_text(options.values, row), decided,
                     source_name(origin.source), origin.place.empty() ? "" : " ", origin.place);
}

std::vector<std::string> option_lines(const FitInputs& in, const MemoryBudget& budget,
                                      const OptionSet& options, const Fit& fit) {
  const auto decided = [](bool is_auto, const std::string& value) {
    return is_auto ? fmt::format(", lowered to {}", value) : "";
  };
  std::vector<std::string> lines;
  lines.push_back(
      option_line(options, "device-memory",
                  options.values.device_memory
                      ? ""
                      : fmt::format(", {}: {} of {} over {} rank{}", budget.source,
                                    format_bytes(budget.available), budget.available_source,
                                    options.values.tp * options.values.dp,
                                    options.values.tp * options.values.dp == 1 ? "" : "s")));
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

// Rounded up to what people type, where that is still there to give.
std::string device_memory_text(Bytes bytes, Bytes available) {
  const Bytes rounded = round_up(bytes, kMiB);
  return format_exact_bytes(rounded <= available ? rounded : bytes);
}

std::vector<std::string> remedies(const FitInputs& in, const MemoryBudget& budget, Bytes needed) {
  const MemoryWindow window = find_window(in, budget);
  std::vector<std::string> lines;
  if (window.device_memory_min) {
    lines.push_back(fmt::format("  --device-memory {} or more, up to {}",
                                device_memory_text(*window.device_memory_min, budget.per_rank_max),
                                format_bytes(budget.per_rank_max)));
  }
  if (window.context_length_max) {
    lines.push_back(fmt::format("  --context-length {} or less", *window.context_length_max));
  }
  if (window.max_running_requests_max) {
    lines.push_back(
        fmt::format("  --max-running-requests {} or less", *window.max_running_requests_max));
  }
  if (window.chunked_prefill_size_max) {
    lines.push_back(
        fmt::format("  --chunked-prefill-size {} or less", *window.chunked_prefill_size_max));
  }
  if (window.max_total_tokens_max) {
    lines.push_back(fmt::format("  --max-total-tokens {} or less", *window.max_total_tokens_max));
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
std::string total_too_small(const OptionSet& options, const Fit& fit) {
  const Blocks needed = blocks_of_tokens(fit.step.context_length);
  return fmt::format(
      "the plan does not fit: max-total-tokens holds {} blocks of {} tokens, and one request of {} "
      "tokens needs {}.\n{}\n{}\nEach of these alone would work:\n  --max-total-tokens {} or more\n"
      "  --context-length {} or less",
      fit.kv_blocks, kKvBlockTokens, grouped(fit.step.context_length), needed,
      option_line(options, "max-total-tokens", ""), option_line(options, "context-length", ""),
      needed * kKvBlockTokens, std::max<Tokens>(1, fit.kv_blocks * kKvBlockTokens));
}

// The ring between the ranks does not grow with what a step holds.
std::string ring_too_small(const FitInputs& in, const Fit& fit, const MemoryBudget& budget) {
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
      in.tp(), format_exact_bytes(kStepRingBytesDefault))};
  for (std::string& line : remedies(in, budget, neediest_rank(in, fit).bytes)) {
    lines.push_back(std::move(line));
  }
  return join(lines, "\n");
}

}  // namespace

MemoryWindow find_window(const FitInputs& in, const MemoryBudget& budget) {
  MemoryWindow window;
  const Bytes needed = neediest_rank(in, least_fit(in)).bytes;
  const Fit least = least_fit(in);
  const Blocks needs = blocks_of_tokens(least.step.context_length);
  const bool holds_one = least.kv_blocks >= needs && step_blocks_max(in, least.step) >= needs;
  if (needed <= budget.per_rank_max && holds_one) window.device_memory_min = needed;
  window.context_length_max = largest_fitting(
      in, 1, in.model->context_length,
      [](FitInputs& changed, std::int64_t value) { changed.context_length = value; });
  if (in.max_running_requests) {
    const OptionRow& row = *find_option("max-running-requests");
    window.max_running_requests_max = largest_fitting(
        in, row.min, row.max,
        [](FitInputs& changed, std::int64_t value) { changed.max_running_requests = value; });
  }
  const OptionRow& chunk = *find_option("chunked-prefill-size");
  window.chunked_prefill_size_max = largest_fitting(
      in, chunk.min, chunk.max,
      [](FitInputs& changed, std::int64_t value) { changed.chunked_prefill_size = value; });
  if (in.max_total_tokens) {
    const Tokens first = blocks_of_tokens(least.step.context_length) * kKvBlockTokens;
    window.max_total_tokens_max = largest_fitting(
        in, in.context_length ? first : kKvBlockTokens, find_option("max-total-tokens")->max,
        [](FitInputs& changed, std::int64_t value) { changed.max_total_tokens = value; });
  }
  return window;
}

std::string refusal_message(const FitInputs& in, const MemoryBudget& budget,
                            const OptionSet& options) {
  const Fit fit = least_fit(in);
  if (step_blocks_max(in, fit.step) < blocks_of_tokens(fit.step.context_length)) {
    return ring_too_small(in, fit, budget);
  }
  if (fit.kv_blocks < blocks_of_tokens(fit.step.context_length)) {
    return total_too_small(options, fit);
  }
  const NeediestRank neediest = neediest_rank(in, fit);
  const RankShape& rank = in.ranks[neediest.index];
  std::vector<PlanRow> rows =
      fixed_rows({.model = *in.model, .rank = rank, .step = fit.step, .tp = in.tp()});
  rows.push_back(kv_row(*in.model, rank.shard, fit.kv_blocks));
  std::vector<std::string> sum;
  for (const PlanRow& row : rows) {
    if (row.bytes > 0)
      sum.push_back(fmt::format("{} {}", term_name(row.term), format_bytes(row.bytes)));
  }
  const PlanRow& binding =
      *std::max_element(rows.begin(), rows.end(),
                        [](const PlanRow& a, const PlanRow& b) { return a.bytes < b.bytes; });
  std::vector<std::string> lines = {
      fmt::format("the plan does not fit: rank {} needs at least {}, and its budget is {} ({})",
                  neediest.index, format_bytes(neediest.bytes), format_bytes(budget.per_rank),
                  budget.source),
      fmt::format("  {} = {}", join(sum, " + "), format_bytes(neediest.bytes)),
      fmt::format("  KV is for {}",
                  in.max_total_tokens
                      ? fmt::format("{} tokens", grouped(*in.max_total_tokens))
                      : fmt::format("one request of {} tokens", grouped(fit.step.context_length))),
      fmt::format("  binding: {}, {} ({})", term_name(binding.term), format_bytes(binding.bytes),
                  binding.formula),
      "Options that take part:"};
  for (std::string& line : option_lines(in, budget, options, fit)) lines.push_back(std::move(line));
  for (std::string& line : remedies(in, budget, neediest.bytes)) lines.push_back(std::move(line));
  return join(lines, "\n");
}

}  // namespace plimsoll
