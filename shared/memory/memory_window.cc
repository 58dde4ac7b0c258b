#include "shared/memory/memory_window.h"

#include <algorithm>

#include <fmt/format.h>

#include "shared/memory/binding_ranks.h"
#include "shared/memory/layout_window.h"
#include "shared/memory/rank_ledger.h"
#include "shared/memory/search.h"
#include "shared/options/option_table.h"

namespace plimsoll {
namespace {

// Puts a value of an option into a copy of the inputs.
using Set = void (*)(FitInputs&, std::int64_t);

// The end of what an option can be asked for, in words.
constexpr const char* kRangeEnd = "the end of the option's range";

Fit fit_with(const FitInputs& in, Set set, std::int64_t value) {
  FitInputs changed = in;
  set(changed, value);
  return decide_fit(changed);
}

Bytes neediest_bytes(const FitInputs& in, const Fit& fit) {
  Bytes most = 0;
  for (const RankShape& rank : in.ranks) most = std::max(most, rank_bytes(in, rank, fit));
  return most;
}

std::string one_request(const FitInputs& in) {
  return fmt::format("KV of one request of {} tokens",
                     grouped(in.context_length.value_or(least_fit(in).step.context_length)));
}

// What fits is what is small enough.
OptionWindow upper_window(const FitInputs& in, const OptionRow& row, std::int64_t last, Set set,
                          std::string_view binds) {
  OptionWindow window{.option = std::string(row.name)};
  window.low = row.min;
  window.binds_low = kRangeEnd;
  const auto fits = [&](std::int64_t value) { return fit_with(in, set, value).fits; };
  if (last < row.min || !fits(row.min)) {
    window.is_empty = true;
    window.binds_high = binds;
    return window;
  }
  window.high = largest_that(row.min, last, fits);
  window.binds_high = window.high < last ? std::string(binds) : kRangeEnd;
  return window;
}

// What fits is enough for one request and leaves enough for all else. Values are multiples of
// `step`.
OptionWindow two_sided_window(const FitInputs& in, const OptionRow& row, std::int64_t step,
                              Set set) {
  OptionWindow window{.option = std::string(row.name)};
  window.binds_low = one_request(in);
  window.binds_high = in.on_devices ? "context, graphs, activations and other buffers beside it"
                                    : "activations and other buffers beside it";
  const std::int64_t first = ceil_div(row.min, step);
  const std::int64_t last = row.max / step;
  const auto fit = [&](std::int64_t units) { return fit_with(in, set, units * step); };
  std::int64_t low = first;
  if (!fit(first).holds_one) {
    low = 1 + largest_that(first, last, [&](std::int64_t units) { return !fit(units).holds_one; });
  }
  const std::int64_t within =
      largest_that(first, last, [&](std::int64_t units) { return fit(units).is_within; });
  if (low > last || !fit(low).fits) {
    window.is_empty = true;
    window.low = low > last ? 0 : low * step;
    window.high = fit(within).is_within ? within * step : 0;
    return window;
  }
  window.low = low * step;
  window.high = largest_that(low, last, [&](std::int64_t units) { return fit(units).fits; }) * step;
  if (low == first) window.binds_low = kRangeEnd;
  if (window.high / step == last) window.binds_high = kRangeEnd;
  return window;
}

void set_fraction(FitInputs& in, std::int64_t value) {
  in.rule = KvRule::static_fraction;
  in.fraction = value;
}
void set_utilization(FitInputs& in, std::int64_t value) {
  in.rule = KvRule::utilization;
  in.fraction = value;
}
void set_kv_bytes(FitInputs& in, std::int64_t value) {
  in.rule = KvRule::bytes;
  in.kv_bytes = value;
}

void add_context(const FitInputs& in, MemoryWindow& window) {
  OptionWindow context = upper_window(
      in, *find_option("context-length"), in.model->context_length,
      [](FitInputs& changed, std::int64_t value) { changed.context_length = value; },
      in.max_total_tokens ? "max-total-tokens, or KV of one request" : "KV of one request");
  if (!context.is_empty && context.high == in.model->context_length) {
    context.binds_high = "what the model was trained for";
  }
  window.options.push_back(std::move(context));
}

// Of a rule that takes a share of it, both KV and room grow with it.
OptionWindow memory_for_rule(const PlanProblem& problem) {
  const auto fits = [&](Bytes bytes) {
    FitInputs changed = problem.fit;
    for (RankShape& rank : changed.ranks) rank.budget = bytes;
    changed.free_before_weights = bytes;
    return decide_fit(changed).fits;
  };
  const Bytes first = find_option("device-memory")->min;
  const Bytes last = problem.budget.per_rank_max;
  OptionWindow memory;
  memory.is_empty = last < first || !fits(last);
  if (!memory.is_empty) {
    memory.low = fits(first)
                     ? first
                     : 1 + largest_that(first, last, [&](Bytes bytes) { return !fits(bytes); });
  }
  return memory;
}

OptionWindow memory_for_demand(const PlanProblem& problem) {
  const FitInputs& in = problem.fit;
  const Fit least = least_fit(in);
  const Bytes needed = neediest_bytes(in, least);
  const Blocks needs = blocks_of_tokens(least.step.context_length);
  const bool holds_one = least.kv_blocks >= needs && step_blocks_max(in, least.step) >= needs;
  OptionWindow memory;
  memory.is_empty = needed > problem.budget.per_rank_max || !holds_one;
  memory.low = needed;
  return memory;
}

void add_device_memory(const PlanProblem& problem, MemoryWindow& window) {
  const FitInputs& in = problem.fit;
  OptionWindow memory =
      in.rule == KvRule::demand ? memory_for_demand(problem) : memory_for_rule(problem);
  memory.option = "device-memory";
  memory.high = problem.budget.per_rank_max;
  memory.binds_low = "all rows at their least, with " + one_request(in);
  memory.binds_high = fmt::format("{} over all ranks", problem.budget.available_source);
  window.options.push_back(std::move(memory));
}

void add_total_tokens(const FitInputs& in, MemoryWindow& window) {
  if (!in.max_total_tokens) return;
  OptionRow row = *find_option("max-total-tokens");
  const Tokens one = blocks_of_tokens(least_fit(in).step.context_length) * kKvBlockTokens;
  row.min = in.context_length ? one : kKvBlockTokens;
  OptionWindow total = upper_window(
      in, row, row.max,
      [](FitInputs& changed, std::int64_t value) { changed.max_total_tokens = value; },
      "KV of that many tokens");
  if (in.context_length) total.binds_low = one_request(in);
  window.options.push_back(std::move(total));
}

// Of ranks on devices, or where a rule is given. `all`: with every rank, of which others decide
// with another utilization.
void add_rules(const FitInputs& in, const FitInputs& all, MemoryWindow& window) {
  // The two fractions exclude each other, and bytes go before both.
  const bool is_open = in.on_devices && in.rule == KvRule::demand;
  if (in.rule == KvRule::static_fraction || is_open) {
    window.options.push_back(
        two_sided_window(in, *find_option("mem-fraction-static"), kFractionStep, set_fraction));
  }
  if (in.rule == KvRule::utilization || is_open) {
    window.options.push_back(two_sided_window(all, *find_option("gpu-memory-utilization"),
                                              kFractionStep, set_utilization));
  }
  if (in.on_devices || in.rule == KvRule::bytes) {
    window.options.push_back(two_sided_window(in, *find_option("kv-cache-bytes"), 1, set_kv_bytes));
  }
}

void add_device_options(const FitInputs& in, MemoryWindow& window) {
  const OptionRow& graphs = *find_option("cuda-graph-max-bs");
  window.options.push_back(upper_window(
      in, graphs, graphs.max,
      [](FitInputs& changed, std::int64_t value) { changed.cuda_graph_max_bs = value; },
      "graphs of that many requests"));
  if (in.setting.ep <= 1) return;
  const OptionRow& dispatch = *find_option("ep-dispatch-tokens");
  window.options.push_back(upper_window(
      in, dispatch, dispatch.max,
      [](FitInputs& changed, std::int64_t value) { changed.setting.ep_dispatch_tokens = value; },
      "the expert-parallel buffer"));
}

std::optional<Millionths> fraction_of_any_kv(const FitInputs& in) {
  if (in.free_before_weights <= 0) return std::nullopt;
  Bytes least = 0;
  for (const RankShape& rank : in.ranks) {
    least = std::max(
        least, static_bytes(ledger_bytes(in, rank, least_fit(in).step)) + rank.kv_token_bytes);
  }
  const Millionths fraction = fraction_of(least, in.free_before_weights);
  if (fraction > kWhole) return std::nullopt;
  return fraction;
}

}  // namespace

const OptionWindow* MemoryWindow::find(std::string_view option) const {
  const auto found = std::ranges::find(options, option, &OptionWindow::option);
  return found == options.end() ? nullptr : &*found;
}

const OptionWindow* MemoryWindow::open(std::string_view option) const {
  const OptionWindow* found = find(option);
  return found == nullptr || found->is_empty ? nullptr : found;
}

MemoryWindow find_window(const PlanQuestion& question, const PlanProblem& problem) {
  const FitInputs in = binding_ranks(problem.fit);
  MemoryWindow window;
  add_rules(in, problem.fit, window);
  if (!in.on_devices) add_device_memory(problem, window);
  add_context(in, window);
  const OptionRow& requests = *find_option("max-running-requests");
  if (in.max_running_requests || in.on_devices) {
    window.options.push_back(upper_window(
        in, requests, requests.max,
        [](FitInputs& changed, std::int64_t value) { changed.max_running_requests = value; },
        "buffers of that many requests"));
  }
  const OptionRow& chunk = *find_option("chunked-prefill-size");
  window.options.push_back(upper_window(
      in, chunk, chunk.max,
      [](FitInputs& changed, std::int64_t value) { changed.chunked_prefill_size = value; },
      "activations of that many tokens"));
  add_total_tokens(in, window);
  if (in.on_devices) add_device_options(in, window);
  add_layout_windows(question, problem, window);
  if (in.rule == KvRule::static_fraction) window.fraction_of_any_kv = fraction_of_any_kv(in);
  return window;
}

std::optional<AutoChoice> find_auto_choice(const FitInputs& all) {
  const FitInputs in = binding_ranks(all);
  FitInputs as_auto = in;
  as_auto.rule = KvRule::demand;
  const Fit fit = decide_fit(as_auto);
  if (!fit.fits) return std::nullopt;
  AutoChoice choice;
  choice.kv_tokens = fit.kv_blocks * kKvBlockTokens;
  choice.context_length = fit.step.context_length;
  choice.max_running_requests = fit.step.max_running_requests;
  Bytes filled = 0;
  for (const RankShape& rank : in.ranks) {
    const Bytes kv = fit.kv_blocks * rank_block_bytes(rank);
    choice.kv_bytes = std::max(choice.kv_bytes, kv);
    filled = std::max(filled, kv + static_bytes(ledger_bytes(in, rank, fit.step)));
  }
  if (in.free_before_weights > 0 && filled <= in.free_before_weights) {
    // Rounded up it may claim what is not there: then the largest that does not.
    FitInputs by_fraction = in;
    set_fraction(by_fraction, fraction_of(filled, in.free_before_weights));
    for (int tries = 0; tries < 2 && !choice.fraction; ++tries) {
      if (decide_fit(by_fraction).fits) choice.fraction = by_fraction.fraction;
      by_fraction.fraction -= kFractionStep;
    }
  }
  return choice;
}

}  // namespace plimsoll
