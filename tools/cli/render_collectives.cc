// The part of rendering that says by what ranks exchange sums.

#include <fmt/format.h>

#include "shared/collective/backend_table.h"
#include "tools/cli/json_view.h"
#include "tools/cli/render.h"

namespace plimsoll {
namespace {

std::string render_one(const Json& replica) {
  const std::int64_t number = int_at(replica, {"replica"});
  const Json* json = replica.find("collectives");
  if (json == nullptr || !json->is_object()) {
    return fmt::format("replica {}: {}\n", number,
                       items_at(replica, {"ranks"}).size() < 2
                           ? "one rank, which exchanges nothing"
                           : "no table: it is not ready, or its devices are simulated");
  }
  const Result<BackendTable> table = table_from_json(*json);
  if (!table) return fmt::format("replica {}: {}\n", number, table.error().message);
  const Json* is_kept = json->find("is_kept");
  const bool kept = is_kept != nullptr && is_kept->is_bool() && is_kept->as_bool();
  return fmt::format(
      "replica {}: {}, table {}, {}\n{}", number, table->backend, table_hash(*table),
      kept ? "measured at an earlier start and checked at this one" : "measured at this start",
      table_text(*table, "  "));
}

}  // namespace

Json collectives_of(const Json& status) {
  Json replicas = Json::array();
  for (const Json& replica : items_at(status, {"replicas"})) {
    const Json* table = replica.find("collectives");
    replicas.push(Json::object({{"replica", int_at(replica, {"replica"})},
                                {"collectives", table == nullptr ? Json() : *table}}));
  }
  return Json::object({{"replicas", std::move(replicas)}});
}

std::string render_collectives(const Json& status) {
  std::string out;
  for (const Json& replica : items_at(status, {"replicas"})) out += render_one(replica);
  return out.empty() ? "nothing runs\n" : out;
}

}  // namespace plimsoll
