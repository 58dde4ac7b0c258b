#include "shared/memory/memory_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/memory_terms.h"
#include "shared/memory/window_text.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

bool same_ledger(const RankPlan& a, const RankPlan& b) {
  if (a.rows.size() != b.rows.size() || a.budget != b.budget || a.device_name != b.device_name) {
    return false;
  }
  return std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(),
                    [](const PlanRow& x, const PlanRow& y) {
                      return x.term == y.term && x.bytes == y.bytes && x.formula == y.formula;
                    });
}

}  // namespace

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

namespace {

// "8 heads, 1 KV head on NVIDIA H200 (140.40 GiB, 2.05 GiB of it held by others)".
std::string device_text(const RankPlan& rank) {
  std::string text = fmt::format("{}, {} on {}", counted(rank.shard.heads.size(), "head"),
                                 counted(rank.shard.kv_heads.size(), "KV head"), rank.device_name);
  text += fmt::format(" ({}", format_bytes(rank.device_total));
  if (rank.held_by_others > 0) {
    text += fmt::format(", {} not free", format_bytes(rank.held_by_others));
  }
  return text + ")";
}

}  // namespace

std::string rank_text(const RankPlan& rank) {
  if (rank.device >= 0) return device_text(rank);
  std::string text =
      fmt::format("{}, {}, {}, {}", counted(rank.shard.heads.size(), "head"),
                  counted(rank.shard.kv_heads.size(), "KV head"),
                  counted(rank.shard.ffn.size(), "ffn column"), counted(rank.threads, "thread"));
  if (!rank.cpus.empty()) text += fmt::format(", bound to NUMA node {}", rank.numa_node);
  return text;
}

namespace {

bool is_two_sided(const OptionWindow& option) {
  return option.option == "mem-fraction-static" || option.option == "gpu-memory-utilization" ||
         option.option == "kv-cache-bytes";
}

std::string share(Bytes bytes, Bytes budget) {
  if (budget <= 0) return "";
  const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(budget);
  return percent > 999 ? ">999 %" : fmt::format("{:.1f} %", percent);
}

std::string ledger(const RankGroup& group) {
  const RankPlan& rank = *group.first;
  std::string out = fmt::format("{}: {}\n", group_title(group), rank_text(rank));
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

std::string memory_summary(const MemoryPlan& plan) {
  const PlanDecisions& decided = plan.decisions;
  Bytes least = plan.ranks.empty() ? 0 : plan.ranks.front().budget;
  Bytes most = least;
  for (const RankPlan& rank : plan.ranks) {
    least = std::min(least, rank.budget);
    most = std::max(most, rank.budget);
  }
  const std::string budget = least == most
                                 ? format_bytes(least)
                                 : fmt::format("{} to {}", format_bytes(least), format_bytes(most));
  std::string out = fmt::format("{}: {} of {}, {} for each rank ({})\n",
                                plan.refusal ? "does not fit" : "fits", counted(plan.dp, "replica"),
                                counted(plan.tp, "rank"), budget, plan.budget_source);
  out += fmt::format("context {}, {}, steps of up to {}, KV for {} a replica\n",
                     counted(decided.context_length, "token"),
                     counted(decided.max_running_requests, "running request"),
                     counted(decided.step_tokens_max, "token"),
                     counted(decided.kv_blocks * kKvBlockTokens, "token"));
  if (plan.devices == "cpu") return out;
  out += fmt::format(
      "KV {} of {} B a token and rank ({}), decode graphs {}\n", format_bytes(plan.kv.bytes),
      grouped(plan.kv.bytes_per_token), kv_type_name(decided.kv_type),
      decided.cuda_graph_max_bs == 0 ? "off"
                                     : "up to " + counted(decided.cuda_graph_max_bs, "request"));
  return out;
}

std::string memory_ledgers(const MemoryPlan& plan) {
  std::string out;
  for (const RankGroup& group : group_ranks(plan)) {
    out += (out.empty() ? "" : "\n") + ledger(group);
  }
  if (!plan.decisions.notes.empty() || !plan.assumptions.empty()) out += "\n";
  for (const std::string& one : plan.assumptions) out += fmt::format("assumed: {}\n", one);
  for (const std::string& note : plan.decisions.notes) out += fmt::format("note: {}\n", note);
  return out;
}

std::string memory_report(const MemoryPlan& plan) {
  return memory_summary(plan) + "\n" + memory_ledgers(plan);
}

std::string window_report(const MemoryWindow& window) {
  std::vector<std::string> ends;
  for (const OptionWindow& option : window.options) {
    if (option.is_empty) continue;
    if (option.option == "device-memory") {
      ends.push_back(
          fmt::format("--device-memory from {}", format_exact_bytes(round_up(option.low, kMiB))));
    } else if (is_two_sided(option) || option.low > find_option(option.option)->min) {
      ends.push_back(fmt::format("--{} {}", option.option, window_range(option)));
    } else {
      ends.push_back(fmt::format("--{} up to {}", option.option, grouped(option.high)));
    }
  }
  return join(ends, "; ");
}

std::string row_line(const PlanRow& row) {
  return fmt::format("{} = {} B = {}: {} ({}, in phase {})", term_name(row.term),
                     grouped(row.bytes), format_bytes(row.bytes), row.formula,
                     trust_name(row.trust), phase_name(term_phase(row.term)));
}

std::string explain_term(const MemoryPlan& plan, Term term) {
  std::string out;
  for (const RankGroup& group : group_ranks(plan)) {
    const auto row = std::ranges::find(group.first->rows, term, &PlanRow::term);
    if (row == group.first->rows.end()) {
      out += fmt::format("{}: {} takes nothing\n", group_title(group), term_name(term));
      continue;
    }
    out += fmt::format("{}: {}\n  {} of the rank's {}\n", group_title(group), row_line(*row),
                       share(row->bytes, group.first->budget), format_bytes(group.first->budget));
  }
  return out;
}

Json explain_term_json(const MemoryPlan& plan, Term term) {
  Json ranks = Json::array();
  for (const RankGroup& group : group_ranks(plan)) {
    Json members = Json::array();
    for (const RankPlan* rank : group.members) {
      members.push(fmt::format("{}.{}", rank->replica, rank->rank));
    }
    const auto row = std::ranges::find(group.first->rows, term, &PlanRow::term);
    const bool is_there = row != group.first->rows.end();
    ranks.push(Json::object({{"ranks", std::move(members)},
                             {"bytes", is_there ? row->bytes : 0},
                             {"formula", is_there ? row->formula : ""},
                             {"trust", is_there ? Json(trust_name(row->trust)) : Json()},
                             {"budget", group.first->budget}}));
  }
  return Json::object({{"version", kPlanJsonVersion},
                       {"term", term_name(term)},
                       {"phase", phase_name(term_phase(term))},
                       {"ranks", std::move(ranks)}});
}

std::optional<Term> term_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kTermCount; ++i) {
    const auto term = static_cast<Term>(i);
    if (name == term_name(term)) return term;
  }
  return std::nullopt;
}

}  // namespace plimsoll
