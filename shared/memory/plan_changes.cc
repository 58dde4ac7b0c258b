#include "shared/memory/plan_changes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "shared/memory/graph_sizes.h"
#include "shared/memory/machine_source.h"
#include "shared/memory/memory_terms.h"
#include "shared/memory/rank_ledger.h"
#include "shared/memory/window_text.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kDispatchMultiple = 128;

struct Outcome {
  Fit fit;
  Bytes kv_token_bytes = 0;
  Tokens tokens() const { return fit.kv_blocks * kKvBlockTokens; }
};

// With other options (and without the draft); unset where it does not fit.
std::optional<Outcome> outcome_of(const PlanQuestion& question, const Options& options,
                                  bool with_draft = true) {
  const std::optional<Machine> made = machine_of_ranks(question.machine, options);
  const Result<PlanProblem> problem = make_problem(made ? *made : question.machine, question.model,
                                                   options, with_draft ? question.draft : nullptr);
  if (!problem) return std::nullopt;
  const Fit fit = decide_fit(problem->fit);
  if (!fit.fits) return std::nullopt;
  return Outcome{fit, problem->fit.ranks.front().kv_token_bytes};
}

std::string holds(const Outcome& outcome) {
  return fmt::format("KV holds {} tokens, context {}", grouped(outcome.tokens()),
                     grouped(outcome.fit.step.context_length));
}

class Finder {
 public:
  Finder(const PlanQuestion& question, const PlanProblem& problem, const MemoryWindow& window)
      : question_(question), problem_(problem), window_(window) {}

  // The windows that ranks on CPUs have are told of with the budget they depend on.
  std::vector<std::string> find_on_cpu() {
    kv_type();
    return std::move(lines_);
  }

  std::vector<std::string> find() {
    by_window("context-length", problem_.fit.context_length, &Options::context_length);
    by_window("max-running-requests", problem_.fit.max_running_requests,
              &Options::max_running_requests);
    graphs();
    by_window("chunked-prefill-size", problem_.fit.chunked_prefill_size,
              &Options::chunked_prefill_size);
    dispatch_tokens();
    kv_type();
    layout("tp", &Options::tp);
    layout("dp", &Options::dp);
    without_draft();
    return std::move(lines_);
  }

 private:
  const Options& options() const { return question_.options.values; }

  void add(const std::string& change, const Outcome& outcome, const std::string& why = "") {
    lines_.push_back(
        fmt::format("  {}: {}{}", change, why.empty() ? "" : why + "; ", holds(outcome)));
  }

  // The largest value that fits, where the option was given and that is less.
  void by_window(std::string_view name, std::optional<std::int64_t> given,
                 std::optional<std::int64_t> Options::*field) {
    const OptionWindow* open = window_.open(name);
    // One that is auto is lowered by itself, but not that far.
    if (!given && name == "context-length") given = least_step().context_length;
    if (open == nullptr || !given || open->high >= *given) return;
    Options changed = options();
    changed.*field = open->high;
    if (const auto outcome = outcome_of(question_, changed)) {
      add(fmt::format("--{} {} or less", name, open->high), *outcome);
    }
  }

  void graphs() {
    const OptionWindow* open = window_.open("cuda-graph-max-bs");
    if (open == nullptr) return;
    const StepShape now = least_step();
    if (open->high >= now.cuda_graph_max_bs && options().cuda_graph_max_bs) return;
    if (!options().cuda_graph_max_bs && open->high >= problem_.fit.graph_batch_default) return;
    const std::int64_t before =
        options().cuda_graph_max_bs.value_or(problem_.fit.graph_batch_default);
    Options changed = options();
    changed.cuda_graph_max_bs = open->high;
    const auto outcome = outcome_of(question_, changed);
    if (!outcome) return;
    const Bytes all = graph_bytes(question_.model.layers, before, options().tp);
    const Bytes freed = all - graph_bytes(question_.model.layers, open->high, options().tp);
    add(fmt::format("--cuda-graph-max-bs {} or less", open->high), *outcome,
        fmt::format("frees {} of {}", format_bytes(freed), format_bytes(all)));
  }

  StepShape least_step() const { return least_fit(problem_.fit).step; }

  void dispatch_tokens() {
    const OptionWindow* open = window_.open("ep-dispatch-tokens");
    if (open == nullptr || open->high >= options().ep_dispatch_tokens) return;
    Options changed = options();
    changed.ep_dispatch_tokens =
        std::max(open->low, open->high / kDispatchMultiple * kDispatchMultiple);
    const auto outcome = outcome_of(question_, changed);
    if (!outcome) return;
    const auto buffer = [&](Tokens tokens) {
      return format_bytes(
          ep_buffer_bytes(question_.model.experts.count, question_.model.hidden, tokens));
    };
    add(fmt::format("--ep-dispatch-tokens {} or less (use {})", open->high,
                    changed.ep_dispatch_tokens),
        *outcome,
        fmt::format("its buffer is {} instead of {}", buffer(changed.ep_dispatch_tokens),
                    buffer(options().ep_dispatch_tokens)));
  }

  void kv_type() {
    if (problem_.kv_type != KvType::f16 && problem_.kv_type != KvType::bf16) return;
    Options changed = options();
    changed.kv_cache_dtype = problem_.fit.on_devices ? "fp8" : "int8";
    const auto outcome = outcome_of(question_, changed);
    if (!outcome) return;
    add("--kv-cache-dtype " + changed.kv_cache_dtype, *outcome,
        fmt::format("{} B a token instead of {}", grouped(outcome->kv_token_bytes),
                    grouped(problem_.fit.ranks.front().kv_token_bytes)));
  }

  // The nearest number of ranks or replicas that works.
  void layout(std::string_view name, std::int64_t Options::*field) {
    const OptionWindow* open = window_.open(name);
    if (open == nullptr) return;
    Options changed = options();
    changed.*field = std::clamp(changed.*field, open->low, open->high);
    if (const auto outcome = outcome_of(question_, changed)) {
      add(fmt::format("--{} {}", name, changed.*field), *outcome,
          open->low == open->high ? "" : window_range(*open) + " work");
    }
  }

  void without_draft() {
    if (question_.draft == nullptr) return;
    Options changed = options();
    changed.draft_model.clear();
    const auto outcome = outcome_of(question_, changed, false);
    if (!outcome) return;
    add("without --draft-model", *outcome,
        fmt::format("frees {}", format_bytes(problem_.fit.ranks.front().draft)));
  }

  const PlanQuestion& question_;
  const PlanProblem& problem_;
  const MemoryWindow& window_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> find_changes(const PlanQuestion& question, const PlanProblem& problem,
                                      const MemoryWindow& window) {
  Finder finder(question, problem, window);
  return problem.fit.on_devices ? finder.find() : finder.find_on_cpu();
}

}  // namespace plimsoll
