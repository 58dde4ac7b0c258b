#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/memory_window.h"
#include "shared/memory/plan_refusal.h"
#include "shared/memory/rank_ledger.h"
#include "shared/memory/sglang_fraction.h"
#include "shared/memory/window_text.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

class Refusal {
 public:
  Refusal(const PlanQuestion& question, const PlanProblem& problem, const MemoryWindow& window)
      : question_(question),
        problem_(problem),
        in_(problem.fit),
        window_(window),
        least_(least_fit(problem.fit)),
        fit_(decide_fit(problem.fit)) {}

  std::string text() {
    Fit bare = least_;
    bare.kv_blocks = 0;
    if (neediest_rank(in_, bare).missing > 0) {
      no_room_for_rows(bare);
    } else if (in_.rule == KvRule::demand) {
      no_room_for_kv();
    } else if (const RankShape* rank = claims_too_much()) {
      held_by_others(*rank);
    } else if (!fit_.holds_one) {
      too_small();
    } else {
      too_large();
    }
    neighbours();
    figures();
    windows();
    changes();
    return join(lines_, "\n");
  }

 private:
  std::string value_of(std::string_view option) const {
    return option_text(question_.options.values, *find_option(option));
  }
  std::string rule_text() const { return plimsoll::rule_text(question_.options, in_.rule); }
  std::string context_text() const { return grouped(least_.step.context_length); }
  Blocks one_request() const { return blocks_of_tokens(least_.step.context_length); }
  // Whether what is said of one rank is true of all: the same rows in the same budget.
  bool are_alike() const {
    const auto same_limit = [&](const DeviceBudget& budget) {
      return budget.limit == problem_.device_budgets.front().limit;
    };
    return in_.ranks.size() == 1 && std::ranges::all_of(problem_.device_budgets, same_limit);
  }
  std::string rank_name(const RankShape& rank) const {
    const std::string name = are_alike() && problem_.case_of.size() > 1
                                 ? fmt::format("each of {} ranks", problem_.case_of.size())
                                 : fmt::format("rank {}", rank.index);
    return rank.device->name.empty() ? name : fmt::format("{} ({})", name, rank.device->name);
  }

  void binding(const RankShape& rank, const std::vector<PlanRow>& rows) {
    const PlanRow& row = *std::ranges::max_element(rows, {}, &PlanRow::bytes);
    lines_.push_back(fmt::format("  binding: {}, {} on {} ({}: {})", term_name(row.term),
                                 format_bytes(row.bytes), rank_name(rank), trust_name(row.trust),
                                 row.formula));
  }

  std::string direction(std::string_view word) const {
    return plimsoll::direction(window_, in_.rule, word);
  }

  // Whoever holds memory of a device that a rank needs.
  void neighbours() {
    for (std::size_t i = 0; i < problem_.case_of.size(); ++i) {
      const Device& device = problem_.devices[i];
      for (const DeviceProcess& process : device.processes) {
        lines_.push_back(fmt::format(
            "  process {} holds {} of device {}{}{}", process.pid,
            process.bytes ? format_bytes(*process.bytes) : "memory that the driver does not tell",
            i, process.user.empty() ? "" : ", user " + process.user,
            process.command.empty() ? "" : ": " + process.command));
      }
    }
  }

  // The whole sum of a rank against its budget.
  void sum(const RankShape& rank, const Fit& fit) {
    std::vector<PlanRow> rows = ledger_rows(in_, rank, fit.step);
    if (fit.kv_blocks > 0) rows.push_back(kv_row(in_, rank, fit.kv_blocks, problem_.kv_type));
    const Bytes needed = rank_bytes(in_, rank, fit);
    lines_.push_back(fmt::format("  {} = {}", sum_text(rows), format_bytes(needed)));
    lines_.push_back(fmt::format("  {} - {} = {} missing", format_bytes(needed),
                                 format_bytes(rank.budget), format_bytes(needed - rank.budget)));
    lines_.push_back(trust_line(rows));
    binding(rank, rows);
  }

  void no_room_for_rows(const Fit& bare) {
    const NeediestRank neediest = neediest_rank(in_, bare);
    const RankShape& rank = in_.ranks[neediest.index];
    lines_.push_back(fmt::format(
        "the plan does not fit: {} needs {} without any KV, and {} is there ({})", rank_name(rank),
        format_bytes(neediest.bytes), format_bytes(rank.budget), budget_source(neediest.index)));
    sum(rank, bare);
  }

  void no_room_for_kv() {
    const NeediestRank neediest = neediest_rank(in_, least_);
    const RankShape& rank = in_.ranks[neediest.index];
    if (!least_.holds_one && in_.max_total_tokens) {
      lines_.push_back(fmt::format(
          "the plan does not fit: max-total-tokens {} is less than one request of {} tokens; raise "
          "it, or lower context-length",
          grouped(*in_.max_total_tokens), context_text()));
      return;
    }
    lines_.push_back(fmt::format(
        "the plan does not fit: {} needs at least {} with KV for {}, and {} is there ({})",
        rank_name(rank), format_bytes(neediest.bytes),
        in_.max_total_tokens ? fmt::format("{} tokens", grouped(*in_.max_total_tokens))
                             : fmt::format("one request of {} tokens", context_text()),
        format_bytes(rank.budget), budget_source(neediest.index)));
    sum(rank, least_);
  }

  const DeviceBudget& budget_of(std::size_t index) const {
    return problem_.device_budgets[static_cast<std::size_t>(in_.ranks[index].index)];
  }
  std::string budget_source(std::size_t index) const { return budget_of(index).source; }

  // Each device must have what is claimed of it; nullptr: all do.
  const RankShape* claims_too_much() const {
    if (in_.rule != KvRule::utilization) return nullptr;
    const auto found = std::ranges::find_if(in_.ranks, [&](const RankShape& rank) {
      return share_of_bytes_up(rank.device->total_to_share(), in_.fraction) > rank.free_at_start;
    });
    return found == in_.ranks.end() ? nullptr : &*found;
  }

  void held_by_others(const RankShape& rank) {
    const Bytes total = rank.device->total_to_share();
    const Bytes wanted = share_of_bytes_up(total, in_.fraction);
    lines_.push_back(fmt::format(
        "the plan does not fit: {} claims {} of {}, and {} are free when a worker starts; lower "
        "it, or free memory",
        rule_text(), format_bytes(wanted), rank_name(rank), format_bytes(rank.free_at_start)));
    lines_.push_back(fmt::format("  {} x {} = {} > {}", format_bytes(total),
                                 value_of(rule_option(in_.rule)), format_bytes(wanted),
                                 format_bytes(rank.free_at_start)));
  }

  // The rank that gets least, and how much.
  std::pair<const RankShape*, Bytes> least_kv() const {
    const RankShape* tightest = &in_.ranks.front();
    Bytes least = kv_bytes_by_rule(in_, *tightest, fit_.step);
    for (const RankShape& rank : in_.ranks) {
      const Bytes bytes = kv_bytes_by_rule(in_, rank, fit_.step);
      if (bytes < least) {
        least = bytes;
        tightest = &rank;
      }
    }
    return {tightest, least};
  }

  void too_small() {
    const auto [rank, kv] = least_kv();
    lines_.push_back(
        kv < 0 ? fmt::format("the plan does not fit: {} leaves {} for KV on {}; {}", rule_text(),
                             format_bytes(kv), rank_name(*rank), direction("raise"))
               : fmt::format("the plan does not fit: {} leaves {} for KV on {}, and one request of "
                             "{} tokens needs {}; {}",
                             rule_text(), format_bytes(kv), rank_name(*rank), context_text(),
                             format_bytes(one_request() * rank_block_bytes(*rank)),
                             direction("raise")));
    arithmetic(*rank);
    std::vector<PlanRow> rows = ledger_rows(in_, *rank, fit_.step);
    std::erase_if(rows, [&](const PlanRow& row) {
      return in_.rule == KvRule::static_fraction && term_phase(row.term) != Phase::load;
    });
    if (!rows.empty() && in_.rule != KvRule::bytes) binding(*rank, rows);
  }

  void arithmetic(const RankShape& rank) {
    for (std::string& line : rule_arithmetic(in_, rank, fit_.step)) {
      lines_.push_back(std::move(line));
    }
  }

  void too_large() {
    const NeediestRank neediest = neediest_rank(in_, fit_);
    const RankShape& rank = in_.ranks[neediest.index];
    lines_.push_back(fmt::format(
        "the plan does not fit: {} gives KV {} on {}, and then {} are needed of {} ({}); {}",
        rule_text(), format_bytes(fit_.kv_blocks * rank_block_bytes(rank)), rank_name(rank),
        format_bytes(neediest.bytes), format_bytes(rank.budget), budget_source(neediest.index),
        direction("lower")));
    arithmetic(rank);
    sum(rank, fit_);
  }

  // Of KV heads that several ranks hold.
  std::string copies_text() const {
    if (problem_.kv_copies >= 2) {
      return fmt::format("on {:.0f} ranks the same", problem_.kv_copies);
    }
    if (problem_.kv_copies <= 1) return "each KV head on one rank";
    return fmt::format("some KV heads on two ranks, {:.2f} times as much in all",
                       problem_.kv_copies);
  }

  void figures() {
    const RankShape& rank = in_.ranks.front();
    lines_.push_back("Figures:");
    lines_.push_back(fmt::format("  free before weights = {} ({}: {})",
                                 format_bytes(in_.free_before_weights),
                                 trust_name(budget_of(0).trust), budget_source(0)));
    for (const PlanRow& row : ledger_rows(in_, rank, least_.step)) {
      if (term_phase(row.term) != Phase::load) continue;
      lines_.push_back(fmt::format("  {} = {} ({}: {})", term_name(row.term),
                                   format_bytes(row.bytes), trust_name(row.trust), row.formula));
    }
    const bool is_given = std::ranges::any_of(
        in_.overrides, [](const Override& figure) { return figure.term == Term::weights; });
    for (const std::string& one : in_.model->assumptions) {
      if (!is_given) lines_.push_back(fmt::format("  assumed: {}", one));
    }
    lines_.push_back(fmt::format("  KV = {} B a token and rank ({}, {})",
                                 grouped(rank.kv_token_bytes), kv_type_name(problem_.kv_type),
                                 copies_text()));
    const OptionSet& options = question_.options;
    if (in_.rule != KvRule::demand)
      lines_.push_back(option_line(options, rule_option(in_.rule), ""));
    lines_.push_back(
        option_line(options, "context-length",
                    in_.context_length ? "" : ", lowered to " + context_text() + " tokens"));
    lines_.push_back(option_line(options, "max-running-requests", ""));
    if (in_.max_total_tokens) lines_.push_back(option_line(options, "max-total-tokens", ""));
    lines_.push_back(option_line(options, "tp", ""));
  }

  void windows() {
    const OptionWindow* own = window_.find(rule_option(in_.rule));
    if (own != nullptr && in_.rule != KvRule::demand) {
      for (std::string& line : window_lines(*own)) lines_.push_back("  " + std::move(line));
      if (window_.fraction_of_any_kv) any_kv();
    }
    for (std::string& line : other_windows(window_, rule_option(in_.rule))) {
      lines_.push_back(std::move(line));
    }
    if (in_.rule == KvRule::static_fraction) sglang_auto();
    const std::optional<AutoChoice> choice = find_auto_choice(in_);
    if (!choice || in_.rule == KvRule::demand) return;
    lines_.push_back(fmt::format(
        "  auto would choose KV of {} ({} tokens, context {}){}", format_bytes(choice->kv_bytes),
        grouped(choice->kv_tokens), grouped(choice->context_length),
        choice->fraction ? ": mem-fraction-static " + format_fraction(*choice->fraction) : ""));
  }

  void sglang_auto() {
    // It asks for all devices that there are.
    Bytes least = in_.ranks.front().device->memory_total;
    for (const Device& device : problem_.devices) least = std::min(least, device.memory_total);
    SglangLaunch launch{.device_mib = least / kMiB,
                        .tp = in_.tp,
                        .is_latent = in_.model->latent.has_value(),
                        .chunked_prefill = in_.chunked_prefill_size.value_or(0),
                        .graph_batch = in_.cuda_graph_max_bs,
                        .requests = in_.max_running_requests.value_or(0),
                        .has_vision = in_.model->vision.has_value(),
                        .has_deepep = in_.setting.ep > 1};
    // Kimi's config has names of its own for them.
    if (in_.model->vision && in_.model->vision->kind != "moonvit") {
      launch.vision_layers = in_.model->vision->layers;
      launch.vision_hidden = in_.model->vision->hidden;
    }
    const Millionths fraction = sglang_auto_fraction(launch);
    lines_.push_back(
        fmt::format("  SGLang's auto would be {} on such a device", format_fraction(fraction)));
  }

  void any_kv() {
    const Millionths fraction = *window_.fraction_of_any_kv;
    FitInputs at = in_;
    at.fraction = fraction;
    Tokens tokens = -1;
    for (const RankShape& rank : in_.ranks) {
      const Tokens own = kv_bytes_by_rule(at, rank, least_.step) / rank.kv_token_bytes;
      tokens = tokens < 0 ? own : std::min(tokens, own);
    }
    lines_.push_back(
        fmt::format("  {} is the smallest mem-fraction-static that leaves KV anything ({} tokens)",
                    format_fraction(fraction), grouped(tokens)));
  }

  void changes() {
    std::vector<std::string> would_work;
    for (const std::string_view name :
         {"mem-fraction-static", "gpu-memory-utilization", "kv-cache-bytes"}) {
      const OptionWindow* open = window_.open(name);
      const bool is_own = in_.rule != KvRule::demand && name == rule_option(in_.rule);
      if (open == nullptr || (in_.rule == KvRule::demand && !is_own)) continue;
      if (!is_own && name == "gpu-memory-utilization") continue;  // one fraction is enough
      would_work.push_back(fmt::format("  --{} {}", name, window_range(*open)));
    }
    if (in_.rule != KvRule::demand && find_auto_choice(in_)) {
      would_work.push_back(
          fmt::format("  no --{}: KV is then sized by demand", rule_option(in_.rule)));
    }
    if (in_.max_total_tokens) {
      if (const OptionWindow* open = window_.open("max-total-tokens")) {
        would_work.push_back(fmt::format("  --max-total-tokens {}", window_range(*open)));
      }
    }
    for (std::string& line : find_changes(question_, problem_, window_)) {
      would_work.push_back(std::move(line));
    }
    if (would_work.empty()) {
      lines_.push_back(
          "No one option makes it fit: use more or larger devices (--tp), or a smaller model.");
      return;
    }
    lines_.push_back(would_work.size() == 1 ? "What would work:"
                                            : "Each of these alone would work:");
    for (std::string& line : would_work) lines_.push_back(std::move(line));
  }

  const PlanQuestion& question_;
  const PlanProblem& problem_;
  const FitInputs& in_;
  const MemoryWindow& window_;
  Fit least_;
  Fit fit_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string device_refusal(const PlanQuestion& question, const PlanProblem& problem,
                           const MemoryWindow& window) {
  return Refusal(question, problem, window).text();
}

}  // namespace plimsoll
