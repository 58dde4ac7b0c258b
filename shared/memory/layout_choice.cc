#include "shared/memory/layout_choice.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/memory/memory_plan.h"
#include "shared/memory/memory_terms.h"
#include "shared/memory/rank_placement.h"

namespace plimsoll {
namespace {

constexpr double kClearly = 1.1;  // times as fast

class Chooser {
 public:
  Chooser(const Machine& machine, const ModelSpec& model, const OptionSet& options,
          const ModelSpec* draft)
      : machine_(machine), model_(model), options_(options), draft_(draft) {}

  LayoutChoice on_cpus(std::span<const LayoutSpeed> measured) const {
    if (std::optional<LayoutChoice> fastest = by_measurement(measured)) return *fastest;
    const std::int64_t nodes = std::ssize(machine_.nodes);
    const LayoutChoice plain = given(1, 1);
    const std::string one_rank = "one rank with all threads";
    if (nodes < 2 || usable_cpu_count(machine_) < nodes) {
      return with_reason(plain, one_rank + ": the machine has one memory node" +
                                    (nodes < 2 ? "" : " for each of its few CPUs"));
    }
    const std::optional<Tokens> context = context_of(plain);
    const LayoutChoice replicas = given(1, nodes);
    if (is_open(replicas) && holds(replicas, context)) {
      return with_reason(replicas, fmt::format("a replica for each of {} memory nodes", nodes));
    }
    const LayoutChoice ranks = given(nodes, 1);
    if (is_open(ranks) && holds(ranks, context)) {
      return with_reason(ranks, fmt::format("a rank for each of {} memory nodes, as replicas would "
                                            "not hold the same context",
                                            nodes));
    }
    return with_reason(plain, one_rank);
  }

  // Every smaller number of ranks that divides the devices is tried.
  LayoutChoice on_devices() const {
    const std::int64_t devices = std::ssize(machine_.devices);
    const std::int64_t replicas = std::max<std::int64_t>(1, options_.values.dp);
    const std::int64_t most = std::max<std::int64_t>(1, devices / replicas);
    std::optional<LayoutChoice> best;
    Tokens longest = 0;
    for (std::int64_t tp = 1; tp <= most; ++tp) {
      if (options_.values.tp == 0 && most % tp != 0) continue;
      const LayoutChoice candidate =
          given(tp, std::max<std::int64_t>(1, devices / given(tp, 1).tp));
      const std::optional<Tokens> context = context_of(candidate);
      if (context && *context > longest) {
        longest = *context;
        best = candidate;
      }
      if (options_.values.tp != 0) break;
    }
    if (!best) {
      return with_reason(given(most, 1), "nothing smaller holds the model");
    }
    return with_reason(*best, fmt::format("the fewest ranks that hold the model with a context of "
                                          "{}, on {}",
                                          counted(longest, "token"), counted(devices, "device")));
  }

 private:
  // What was given goes first.
  LayoutChoice given(std::int64_t tp, std::int64_t dp) const {
    const Options& values = options_.values;
    return {.tp = values.tp == 0 ? tp : values.tp, .dp = values.dp == 0 ? dp : values.dp};
  }
  // Whether it says something else than what was given already.
  bool is_open(const LayoutChoice& choice) const {
    const LayoutChoice plain = given(1, 1);
    return choice.tp != plain.tp || choice.dp != plain.dp;
  }

  LayoutChoice with_reason(LayoutChoice choice, const std::string& reason) const {
    choice.why = fmt::format("tp {} x dp {} ({}): {}", choice.tp, choice.dp,
                             options_.values.tp != 0   ? "dp is auto"
                             : options_.values.dp != 0 ? "tp is auto"
                                                       : "both are auto",
                             reason);
    return choice;
  }

  // Of its plan, where it fits.
  std::optional<Tokens> context_of(const LayoutChoice& choice) const {
    const Result<MemoryPlan> plan =
        plan_memory(machine_, model_, with_layout(options_, choice), draft_);
    if (!plan || plan->refusal) return std::nullopt;
    return plan->decisions.context_length;
  }
  bool holds(const LayoutChoice& choice, const std::optional<Tokens>& context) const {
    const std::optional<Tokens> own = context_of(choice);
    return own && (!context || *own >= *context);
  }

  // Of each layout that may be chosen, its fastest launch under loads of so many binary digits.
  std::vector<const LayoutSpeed*> of_load(std::span<const LayoutSpeed> measured, int digits) const {
    std::vector<const LayoutSpeed*> found;
    for (const LayoutSpeed& one : measured) {
      const auto requests = static_cast<std::uint64_t>(std::max<std::int64_t>(0, one.requests));
      const LayoutChoice own = given(one.tp, one.dp);
      if (static_cast<int>(std::bit_width(requests)) != digits) continue;
      if (own.tp != one.tp || own.dp != one.dp) continue;
      const auto same = std::ranges::find_if(found, [&](const LayoutSpeed* other) {
        return other->tp == one.tp && other->dp == one.dp;
      });
      if (same == found.end()) {
        found.push_back(&one);
      } else if ((*same)->tokens_per_second < one.tokens_per_second) {
        *same = &one;
      }
    }
    return found;
  }

  // The load decides how fast a launch was, so only like loads are compared: as many requests, to a
  // factor of two. The load under which most layouts were measured counts, of several the largest.
  std::optional<LayoutChoice> by_measurement(std::span<const LayoutSpeed> measured) const {
    std::vector<const LayoutSpeed*> found;
    for (int digits = 63; digits > 0; --digits) {
      std::vector<const LayoutSpeed*> here = of_load(measured, digits);
      if (here.size() > found.size()) found = std::move(here);
    }
    if (found.size() < 2) return std::nullopt;
    std::ranges::sort(found, std::greater<>(), &LayoutSpeed::tokens_per_second);
    const LayoutSpeed& fastest = *found[0];
    const LayoutSpeed& next = *found[1];
    const LayoutChoice choice = given(fastest.tp, fastest.dp);
    if (fastest.tokens_per_second < kClearly * next.tokens_per_second || !context_of(choice)) {
      return std::nullopt;
    }
    return with_reason(
        choice, fmt::format("measured {:.0f} tokens/s with {} ({}), tp {} x dp {} {:.0f} ({})",
                            fastest.tokens_per_second, counted(fastest.requests, "request"),
                            fastest.from, next.tp, next.dp, next.tokens_per_second, next.from));
  }

  const Machine& machine_;
  const ModelSpec& model_;
  const OptionSet& options_;
  const ModelSpec* draft_;
};

}  // namespace

bool is_layout_auto(const Options& options) { return options.tp == 0 || options.dp == 0; }

Result<LayoutChoice> choose_layout(const Machine& machine, const ModelSpec& model,
                                   const OptionSet& options, const ModelSpec* draft,
                                   std::span<const LayoutSpeed> measured) {
  if (!is_layout_auto(options.values)) {
    return LayoutChoice{.tp = options.values.tp, .dp = options.values.dp};
  }
  const Chooser chooser(machine, model, options, draft);
  return machine.devices.empty() ? chooser.on_cpus(measured) : chooser.on_devices();
}

OptionSet with_layout(OptionSet options, const LayoutChoice& choice) {
  options.values.tp = choice.tp;
  options.values.dp = choice.dp;
  return options;
}

}  // namespace plimsoll
