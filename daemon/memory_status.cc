#include "daemon/memory_status.h"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

Json known(const std::optional<Bytes>& bytes) { return bytes ? Json(*bytes) : Json(); }

// The plan's rows by term, then what the plan has no row for.
Json rows_json(const RankMemory& memory) {
  const std::optional<Measured>& measured = memory.worker.measured;
  std::set<std::string, std::less<>> listed = {term_name(Term::kv)};
  Json rows = Json::array();
  const auto add = [&](const std::string& term, Bytes planned) {
    if (!listed.insert(term).second) return;
    std::optional<Bytes> found;
    if (measured && measured->terms.contains(term)) found = measured->terms.at(term);
    rows.push(Json::object({{"term", term}, {"planned", planned}, {"measured", known(found)}}));
  };
  for (const PlanRow& row : memory.rank.rows) add(term_name(row.term), memory.rank.bytes(row.term));
  if (!measured) return rows;
  for (const auto& [term, bytes] : measured->terms) add(term, 0);
  return rows;
}

Json kv_json(const RankMemory& memory) {
  const Bytes planned = memory.rank.bytes(Term::kv);
  const Blocks blocks = memory.plan.decisions.kv_blocks;
  const Bytes block = blocks > 0 ? ceil_div(planned, blocks) : 0;
  Bytes touched = memory.worker.kv_blocks_touched * block;
  if (memory.worker.measured) touched = std::max(touched, memory.worker.measured->kv_touched);
  return Json::object(
      {{"planned", planned}, {"committed", memory.kv_blocks * block}, {"touched", touched}});
}

}  // namespace

Json rank_memory_json(const RankMemory& memory) {
  const std::optional<Measured>& measured = memory.worker.measured;
  Json json = Json::object({{"planned", memory.rank.total() - memory.rank.bytes(Term::kv) -
                                            memory.rank.bytes(Term::margin)},
                            {"measured", measured ? Json(measured->sum()) : Json()},
                            {"resident", measured ? Json(measured->resident) : Json()},
                            {"source", measured ? Json(measured->source) : Json()},
                            {"rows", rows_json(memory)},
                            {"kv", kv_json(memory)}});
  if (!measured) return json;
  json.set("free", known(measured->free));
  json.set("neighbours", measured->neighbours);
  json.set("cgroup", known(measured->cgroup));
  return json;
}

std::string lowered_line(const LaunchPlan& plan, Blocks committed) {
  std::vector<std::string> parts;
  const Tokens wanted = plan.memory.decisions.context_length_wanted;
  if (plan.context_length < wanted) {
    parts.push_back(fmt::format("the context is {} of {} tokens", grouped(plan.context_length),
                                grouped(wanted)));
  }
  if (committed > 0 && committed < plan.kv_blocks) {
    const Bytes block = ceil_div(plan.memory.kv.bytes, plan.kv_blocks);
    parts.push_back(fmt::format("KV of a rank is {} of the {} that were planned",
                                format_bytes(committed * block),
                                format_bytes(plan.memory.kv.bytes)));
  }
  return parts.empty() ? "" : join(parts, ", ") + ": what memory allows";
}

Json drifts_json(const std::vector<Drift>& drifts) {
  Json list = Json::array();
  for (const Drift& drift : drifts) {
    Json ranks = Json::array();
    for (const std::string& rank : drift.ranks) ranks.push(rank);
    list.push(Json::object({{"term", drift.term},
                            {"planned", drift.planned},
                            {"trust", trust_name(drift.trust)},
                            {"measured", drift.measured},
                            {"tolerance", drift.tolerance},
                            {"ranks", std::move(ranks)}}));
  }
  return list;
}

}  // namespace plimsoll
