// TableChoice: by which table the ranks of a replica go from here on.
#pragma once

#include <optional>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/collective/backend_table.h"
#include "worker/collective/collective.h"
#include "worker/collective/self_test.h"

namespace plimsoll {

struct ChosenTable {
  BackendTable table;
  bool is_kept = false;  // of an earlier start, and still right
};

// A kept table is only checked; without one, or where it is not right any more, all ranks test what
// there is. From then on the collective goes by the result, which is the same on all of them.
// Before, it waits for a rank that has much more memory to touch than the others.
// One that has nothing to choose from has a table of one row. nullopt: one rank. Errors: of the
// collective; internal: nothing is right.
Result<std::optional<ChosenTable>> choose_table(Collective& collective,
                                                const std::optional<BackendTable>& kept,
                                                const SelfTestSetup& setup);

// table_to_json with "is_kept"; null: none.
Json chosen_to_json(const std::optional<ChosenTable>& chosen);

}  // namespace plimsoll
