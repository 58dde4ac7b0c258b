#include "shared/memory/layout_window.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/memory/machine_source.h"
#include "shared/memory/memory_fit.h"
#include "shared/options/assumption.h"
#include "shared/options/option_table.h"

namespace plimsoll {
namespace {

// What comes of one number of ranks or replicas.
struct Trial {
  bool fits = false;
  std::string why;  // of one that the model, the machine or another option forbids; else empty
};

class LayoutFinder {
 public:
  LayoutFinder(const PlanQuestion& question, const PlanProblem& problem,
               std::int64_t Options::*field, PackedWeights& packed)
      : question_(question),
        problem_(problem),
        field_(field),
        row_(*find_option(field == &Options::tp ? "tp" : "dp")),
        packed_(packed) {}

  OptionWindow find() {
    try_all();
    OptionWindow window{.option = std::string(row_.name)};
    const std::int64_t now = question_.options.values.*field_;
    std::int64_t nearest = 0;
    for (std::int64_t value = first(); value <= last(); ++value) {
      if (!at(value).fits) continue;
      if (nearest == 0 || std::abs(value - now) < std::abs(nearest - now)) nearest = value;
    }
    if (nearest == 0) {
      window.is_empty = true;
      window.binds_low = window.binds_high = "the weights, and KV of one request";
      return window;
    }
    window.low = window.high = nearest;
    while (window.low > first() && at(window.low - 1).fits) --window.low;
    while (window.high < last() && at(window.high + 1).fits) ++window.high;
    window.binds_low = against(window.low - 1, "what each rank would hold, with KV of one request");
    window.binds_high =
        against(window.high + 1, problem_.fit.on_devices
                                     ? "what each rank would hold, with KV of one "
                                       "request"
                                     : problem_.budget.available_source + ", divided over as many");
    return window;
  }

 private:
  std::int64_t first() const { return row_.min; }
  std::int64_t last() const { return first() + std::ssize(trials_) - 1; }
  const Trial& at(std::int64_t value) const {
    return trials_[static_cast<std::size_t>(value - first())];
  }
  bool is_ranks() const { return field_ == &Options::tp; }

  // Up to the first that the machine or the model has no place for: no larger one has.
  void try_all() {
    const bool follows = machine_of_ranks(question_.machine, question_.options.values).has_value();
    const std::int64_t devices = std::ssize(question_.machine.devices);
    for (std::int64_t value = first(); value <= row_.max; ++value) {
      Options changed = question_.options.values;
      changed.*field_ = value;
      if (problem_.fit.on_devices && !follows && changed.tp * changed.dp > devices) {
        beyond_ = fmt::format("{} device{}", devices, devices == 1 ? "" : "s");
        return;
      }
      if (is_ranks() && !has_place_for(value)) {
        beyond_ = "what this model can be divided over";
        return;
      }
      trials_.push_back(attempt(changed));
    }
  }

  // On devices some numbers of ranks divide a feed-forward that fewer do not.
  bool has_place_for(std::int64_t ranks) const {
    if (!problem_.fit.is_ours) return ranks <= question_.model.heads;
    return plan_shards(question_.model, ranks).has_value();
  }

  Trial attempt(const Options& changed) {
    const std::optional<Machine> made = machine_of_ranks(question_.machine, changed);
    const Result<PlanProblem> problem = make_problem(
        made ? *made : question_.machine, question_.model, changed, question_.draft, &packed_);
    if (!problem) return {.fits = false, .why = reason(problem.error().message)};
    return {.fits = decide_fit(problem->fit).fits, .why = {}};
  }

  // The first clause: what follows is advice.
  static std::string reason(const std::string& message) {
    return message.substr(0, message.find_first_of(";\n"));
  }

  // What stands against one value beyond an end; `memory`, where it is that.
  std::string against(std::int64_t value, std::string memory) const {
    if (value < first()) return "the end of the option's range";
    if (value > last()) return beyond_.empty() ? "the end of the option's range" : beyond_;
    return at(value).why.empty() ? std::move(memory) : at(value).why;
  }

  const PlanQuestion& question_;
  const PlanProblem& problem_;
  std::int64_t Options::*field_;
  const OptionRow& row_;
  PackedWeights& packed_;
  std::vector<Trial> trials_;  // from first() on
  std::string beyond_;         // what stands against the value after the last trial
};

// Figures of one rank, which are others where more or fewer ranks divide the model.
constexpr std::array<std::string_view, 6> kOfARank = {"weights", "kv-token", "absorbed",
                                                      "vision",  "draft",    "draft-kv-token"};

bool is_of_these_ranks(const Options& options) {
  const auto assumed = parse_assumptions(options.assume);
  return assumed && std::ranges::any_of(*assumed, [](const Assumption& one) {
           return std::ranges::find(kOfARank, one.term) != kOfARank.end();
         });
}

}  // namespace

void add_layout_windows(const PlanQuestion& question, const PlanProblem& problem,
                        MemoryWindow& window) {
  PackedWeights packed;
  if (!is_of_these_ranks(question.options.values)) {
    window.options.push_back(LayoutFinder(question, problem, &Options::tp, packed).find());
  }
  window.options.push_back(LayoutFinder(question, problem, &Options::dp, packed).find());
}

}  // namespace plimsoll
