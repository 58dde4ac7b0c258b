#include "shared/memory/reconcile.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/memory_fit.h"
#include "shared/memory/memory_terms.h"
#include "shared/model/dtype.h"

namespace plimsoll {
namespace {

constexpr std::size_t kRanksNamedMax = 8;

// One term of one rank; KV is none of them.
struct Entry {
  std::string term;
  Trust trust = Trust::computed;
  Bytes planned = 0;
  std::optional<Bytes> measured;  // unset: not made yet
  Bytes actual() const { return measured.value_or(planned); }
};

struct RankAccount {
  std::string name;  // "0.3"
  bool is_cpu = false;
  const Measured* measured = nullptr;
  Bytes budget = 0;
  Bytes kv_block = 0;
  std::vector<Entry> entries;  // in the plan's order, then hidden ones
  Bytes planned() const {
    Bytes sum = 0;
    for (const Entry& entry : entries) sum += entry.planned;
    return sum;
  }
};

// What bounds KV of a rank, and by how much.
struct Room {
  Bytes bytes = std::numeric_limits<Bytes>::max();
  Blocks blocks = std::numeric_limits<Blocks>::max();
  const RankAccount* rank = nullptr;
  std::string arithmetic = {};
};

void plan_entry(const PlanRow& row, std::vector<Entry>& entries) {
  if (row.term == Term::kv) return;
  const auto same = [&](const Entry& entry) { return entry.term == term_name(row.term); };
  const auto found = std::ranges::find_if(entries, same);
  if (found == entries.end()) {
    entries.push_back({term_name(row.term), row.trust, row.bytes, std::nullopt});
  } else {
    found->planned += row.bytes;
  }
}

std::vector<Entry>::iterator learned_process(RankAccount& account) {
  return std::ranges::find_if(account.entries, [](const Entry& entry) {
    return entry.term == term_name(Term::process) && entry.trust == Trust::learned;
  });
}

RankAccount account_of(const MemoryPlan& plan, const RankPlan& rank, const Measured& measured) {
  RankAccount account;
  account.name = fmt::format("{}.{}", rank.replica, rank.rank);
  account.is_cpu = measured.source == kPssSource;
  account.measured = &measured;
  account.budget = rank.budget;
  const Blocks blocks = plan.decisions.kv_blocks;
  account.kv_block = blocks > 0 ? ceil_div(rank.bytes(Term::kv), blocks) : 0;
  for (const PlanRow& row : rank.rows) plan_entry(row, account.entries);
  for (const auto& [term, bytes] : measured.terms) {
    if (term == term_name(Term::kv)) continue;
    auto found = std::ranges::find(account.entries, term, &Entry::term);
    // What has no row of its own is planned as the process, once it has been seen before.
    if (found == account.entries.end()) found = learned_process(account);
    if (found == account.entries.end()) {
      account.entries.push_back({term, Trust::computed, 0, bytes});
    } else {
      found->measured = found->measured.value_or(0) + bytes;
    }
  }
  return account;
}

Bytes tolerance_of(const RankAccount& rank, const Entry& entry) {
  const auto share = [](Bytes bytes, double part) {
    return static_cast<Bytes>(static_cast<double>(bytes) * part);
  };
  if (rank.is_cpu) return std::max(kCpuTolerance, share(rank.planned(), kCpuToleranceShare));
  return std::max(kDeviceTolerance, share(entry.planned, kDeviceToleranceShare));
}

// PSS divides a page of a library by all who map it, strangers too: of such a term it may show too
// little, and says nothing by it.
bool is_shared_with_others(const Entry& entry) { return entry.term == term_name(Term::process); }

std::vector<Drift> find_drifts(const std::vector<RankAccount>& ranks) {
  std::vector<Drift> drifts;
  for (const RankAccount& rank : ranks) {
    for (const Entry& entry : rank.entries) {
      const Bytes tolerance = tolerance_of(rank, entry);
      if (!entry.measured || std::abs(*entry.measured - entry.planned) <= tolerance) continue;
      if (rank.is_cpu && *entry.measured < entry.planned && is_shared_with_others(entry)) continue;
      const auto same = std::ranges::find_if(drifts, [&](const Drift& drift) {
        return drift.term == entry.term && drift.planned == entry.planned &&
               drift.measured == *entry.measured;
      });
      if (same != drifts.end()) {
        same->ranks.push_back(rank.name);
      } else {
        drifts.push_back(
            {entry.term, entry.trust, entry.planned, *entry.measured, tolerance, {rank.name}});
      }
    }
  }
  const auto size = [](const Drift& drift) { return std::abs(drift.measured - drift.planned); };
  std::ranges::stable_sort(drifts, std::ranges::greater(), size);
  return drifts;
}

std::string entry_text(const Entry& entry) {
  std::string text = fmt::format("{} {}", entry.term, format_bytes(entry.actual()));
  if (entry.actual() != entry.planned) {
    text += fmt::format(" (planned {})", format_bytes(entry.planned));
  }
  return text;
}

// Within the rank's budget: what it was given minus all else that it holds or will hold.
Room budget_room(const RankAccount& rank) {
  Room room{.bytes = rank.budget, .rank = &rank};
  std::vector<std::string> parts = {fmt::format("budget {}", format_bytes(rank.budget))};
  for (const Entry& entry : rank.entries) {
    room.bytes -= entry.actual();
    if (entry.actual() > 0) parts.push_back(entry_text(entry));
  }
  room.arithmetic = join(parts, " - ");
  return room;
}

// Of what its device has left now, where that is known.
Room device_room(const RankAccount& rank) {
  if (rank.is_cpu || !rank.measured->free) return {};
  Room room{.bytes = *rank.measured->free, .rank = &rank};
  std::vector<std::string> parts = {fmt::format("{} free now", format_bytes(room.bytes))};
  if (rank.measured->neighbours > 0) {
    parts.back() +=
        fmt::format(" (other processes hold {})", format_bytes(rank.measured->neighbours));
  }
  for (const Entry& entry : rank.entries) {
    if (entry.measured || entry.planned == 0) continue;
    room.bytes -= entry.planned;
    parts.push_back(fmt::format("{} {} (still to come)", entry.term, format_bytes(entry.planned)));
  }
  room.arithmetic = join(parts, " - ");
  return room;
}

// Of what the machine has left for all CPU ranks together.
Room host_room(const std::vector<RankAccount>& ranks) {
  Bytes free = std::numeric_limits<Bytes>::max();
  Bytes to_touch = 0;
  Bytes block = 0;
  for (const RankAccount& rank : ranks) {
    if (!rank.is_cpu || !rank.measured->free) return {};
    free = std::min(free, *rank.measured->free);
    to_touch += std::max<Bytes>(0, rank.measured->sum() - rank.measured->resident);
    block += rank.kv_block;
  }
  if (ranks.empty() || block == 0) return {};
  Room room{.bytes = free - to_touch, .rank = &ranks.front()};
  room.blocks = std::max<Blocks>(0, room.bytes / block);
  room.arithmetic = fmt::format(
      "{} available on the machine now - {} that the ranks have not "
      "touched yet, for {} of KV a block over {} ranks",
      format_bytes(free), format_bytes(to_touch), format_bytes(block), ranks.size());
  return room;
}

Room tightest_room(const std::vector<RankAccount>& ranks) {
  Room tightest = host_room(ranks);
  for (const RankAccount& rank : ranks) {
    if (rank.kv_block == 0) continue;
    for (Room room : {budget_room(rank), device_room(rank)}) {
      if (room.rank == nullptr) continue;
      room.blocks = std::max<Blocks>(0, room.bytes / rank.kv_block);
      if (room.blocks < tightest.blocks) tightest = std::move(room);
    }
  }
  return tightest;
}

std::string tokens_text(Blocks blocks) {
  return fmt::format("{} blocks ({} tokens)", grouped(blocks), grouped(blocks * kKvBlockTokens));
}

Error refusal_of(const Room& room, Tokens context) {
  std::vector<std::string> lines = {
      fmt::format("the launch does not fit: now that the weights are loaded, rank {} has room for "
                  "{} of KV, and one request of {} tokens needs {}",
                  room.rank->name, tokens_text(room.blocks), grouped(context),
                  grouped(blocks_of_tokens(context))),
      fmt::format("  {} = {} for KV; a block takes {}", room.arithmetic,
                  room.bytes < 0 ? "-" + format_bytes(-room.bytes) : format_bytes(room.bytes),
                  format_bytes(room.rank->kv_block)),
      "What would work:"};
  if (room.rank->measured->neighbours > 0) {
    lines.push_back(fmt::format("  end the processes that hold {} of this device",
                                format_bytes(room.rank->measured->neighbours)));
  }
  if (room.blocks > 0) {
    lines.push_back(fmt::format("  --context-length {} or less", room.blocks * kKvBlockTokens));
  }
  lines.emplace_back("  more memory for each rank, more ranks (--tp), or a smaller model");
  return does_not_fit(join(lines, "\n"));
}

}  // namespace

Reconciled reconcile(const MemoryPlan& plan, std::span<const RankMeasured> ranks,
                     Blocks kv_blocks_max) {
  std::vector<RankAccount> accounts;
  for (const RankPlan& planned : plan.ranks) {
    for (const RankMeasured& rank : ranks) {
      if (rank.replica != planned.replica || rank.rank != planned.rank) continue;
      accounts.push_back(account_of(plan, planned, rank.measured));
    }
  }
  const Tokens context = plan.decisions.context_length;
  Reconciled result{
      .kv_blocks = kv_blocks_max, .context_length = context, .drifts = find_drifts(accounts)};
  const Room room = tightest_room(accounts);
  if (room.rank == nullptr || room.blocks >= kv_blocks_max) return result;
  std::string lowered;
  if (room.blocks < blocks_of_tokens(context)) {
    const Tokens least = plan.decisions.context_length_min;
    if (least == 0 || room.blocks < blocks_of_tokens(least)) {
      result.refusal = refusal_of(room, least == 0 ? context : least);
      return result;
    }
    result.context_length = std::max(least, room.blocks * kKvBlockTokens);
    lowered = fmt::format(", and the context, which is auto, {} tokens instead of {}",
                          grouped(result.context_length), grouped(context));
  }
  result.kv_blocks = room.blocks;
  result.shrunk = fmt::format("KV is {} instead of {} on all ranks{}: rank {} has {} = {} for it",
                              tokens_text(room.blocks), tokens_text(kv_blocks_max), lowered,
                              room.rank->name, room.arithmetic, format_bytes(room.bytes));
  return result;
}

std::string drift_line(const Drift& drift) {
  std::vector<std::string> names = drift.ranks;
  if (names.size() > kRanksNamedMax) names.resize(kRanksNamedMax);
  std::string ranks =
      fmt::format("{} {}", drift.ranks.size() == 1 ? "rank" : "ranks", join(names, ", "));
  if (names.size() < drift.ranks.size()) {
    ranks += fmt::format(" and {} more", drift.ranks.size() - names.size());
  }
  const Bytes difference = drift.measured - drift.planned;
  const std::string trust =
      drift.planned > 0 ? fmt::format(" ({})", trust_name(drift.trust)) : std::string();
  return fmt::format("{}: planned {}{}, measured {}: {} {} ({} is tolerated) on {}", drift.term,
                     format_bytes(drift.planned), trust, format_bytes(drift.measured),
                     format_bytes(std::abs(difference)), difference > 0 ? "more" : "less",
                     format_bytes(drift.tolerance), ranks);
}

}  // namespace plimsoll
