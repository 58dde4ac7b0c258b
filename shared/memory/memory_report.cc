#include "shared/memory/memory_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

// Ranks that have the same rows: the first of them stands for all.
struct RankGroup {
  const RankPlan* first = nullptr;
  std::vector<const RankPlan*> members;
};

bool same_ledger(const RankPlan& a, const RankPlan& b) {
  if (a.rows.size() != b.rows.size() || a.budget != b.budget) return false;
  return std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(),
                    [](const PlanRow& x, const PlanRow& y) {
                      return x.term == y.term && x.bytes == y.bytes && x.formula == y.formula;
                    });
}

std::vector<RankGroup> group_ranks(const MemoryPlan& plan) {
  std::vector<RankGroup> groups;
  for (const RankPlan& rank : plan.ranks) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const RankGroup& group) {
      return same_ledger(*group.first, rank);
    });
    if (found == groups.end()) {
      groups.push_back({&rank, {&rank}});
    } else {
      found->members.push_back(&rank);
    }
  }
  return groups;
}

// "rank 0.0 (replica.rank), 1.0": at most a handful, then how many more.
std::string group_title(const RankGroup& group) {
  constexpr std::size_t kNamedMax = 8;
  std::vector<std::string> names;
  for (const RankPlan* rank : group.members) {
    if (names.size() == kNamedMax) break;
    names.push_back(fmt::format("{}.{}", rank->replica, rank->rank));
  }
  std::string title =
      fmt::format("{} {}", group.members.size() == 1 ? "rank" : "ranks", join(names, ", "));
  if (group.members.size() > names.size()) {
    title += fmt::format(" and {} more", group.members.size() - names.size());
  }
  return title;
}

std::string shard_text(const RankPlan& rank) {
  std::string text =
      fmt::format("{} head{}, {} KV head{}, {} ffn columns, {} thread{}", rank.shard.heads.size(),
                  rank.shard.heads.size() == 1 ? "" : "s", rank.shard.kv_heads.size(),
                  rank.shard.kv_heads.size() == 1 ? "" : "s", grouped(rank.shard.ffn.size()),
                  rank.threads, rank.threads == 1 ? "" : "s");
  if (!rank.cpus.empty()) text += fmt::format(", bound to NUMA node {}", rank.numa_node);
  return text;
}

std::string share(Bytes bytes, Bytes budget) {
  if (budget <= 0) return "";
  const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(budget);
  return percent > 999 ? ">999 %" : fmt::format("{:.1f} %", percent);
}

std::string ledger(const RankGroup& group) {
  const RankPlan& rank = *group.first;
  std::string out = fmt::format("{}: {}\n", group_title(group), shard_text(rank));
  const auto line = [&](std::string_view name, Bytes bytes, std::string_view why) {
    out += fmt::format("  {:<12}{:>12}{:>9}{}{}\n", name, format_bytes(bytes),
                       share(bytes, rank.budget), why.empty() ? "" : "  ", why);
  };
  for (const PlanRow& row : rank.rows) {
    if (row.bytes == 0) continue;
    line(term_name(row.term), row.bytes, row.formula);
  }
  line("total", rank.total(), "");
  line("budget", rank.budget, "");
  const Bytes spare = rank.budget - rank.total();
  line(spare < 0 ? "missing" : "spare", spare < 0 ? -spare : spare, "");
  return out;
}

}  // namespace

std::string memory_report(const MemoryPlan& plan) {
  const PlanDecisions& decided = plan.decisions;
  std::string out = fmt::format(
      "{}: {} replica{} of {} rank{}, {} for each rank ({})\n",
      plan.refusal ? "does not fit" : "fits", plan.dp, plan.dp == 1 ? "" : "s", plan.tp,
      plan.tp == 1 ? "" : "s",
      format_bytes(plan.ranks.empty() ? Bytes{0} : plan.ranks.front().budget), plan.budget_source);
  out += fmt::format(
      "context {} tokens, {} running requests, steps of up to {} tokens, KV for {} tokens a "
      "replica\n",
      grouped(decided.context_length), decided.max_running_requests,
      grouped(decided.step_tokens_max), grouped(decided.kv_blocks * kKvBlockTokens));
  for (const RankGroup& group : group_ranks(plan)) out += "\n" + ledger(group);
  if (!decided.notes.empty()) out += "\n";
  for (const std::string& note : decided.notes) out += fmt::format("note: {}\n", note);
  return out;
}

std::string window_report(const MemoryWindow& window) {
  std::vector<std::string> ends;
  if (window.device_memory_min) {
    ends.push_back(fmt::format("--device-memory from {}", format_bytes(*window.device_memory_min)));
  }
  const auto up_to = [&](std::string_view name, const std::optional<std::int64_t>& end) {
    if (end) ends.push_back(fmt::format("--{} up to {}", name, grouped(*end)));
  };
  up_to("context-length", window.context_length_max);
  up_to("max-running-requests", window.max_running_requests_max);
  up_to("chunked-prefill-size", window.chunked_prefill_size_max);
  up_to("max-total-tokens", window.max_total_tokens_max);
  return join(ends, "; ");
}

}  // namespace plimsoll
