#include "worker/collective/table_choice.h"

#include <string>
#include <utility>
#include <vector>

#include "worker/collective/tunable.h"

namespace plimsoll {

Result<std::optional<ChosenTable>> choose_table(Collective& collective,
                                                const std::optional<BackendTable>& kept,
                                                const SelfTestSetup& setup) {
  std::optional<ChosenTable> chosen;
  if (collective.size() < 2) return chosen;
  Tunable* const tunable = collective.tunable();
  if (tunable == nullptr) {  // what there is all ranks have to agree on too
    chosen = ChosenTable{.table = table_of_one(std::string(collective.name()), "its own way")};
    return chosen;
  }
  TRY(collective.await_peers(kPeersPatience));  // a call would give them the deadline of a step
  if (kept && is_table_of(*kept, *tunable) &&
      TRY(verify_table(collective, *tunable, *kept, setup))) {
    chosen = ChosenTable{.table = *kept, .is_kept = true};
  } else {
    const std::vector<AlgorithmTest> tests = TRY(run_self_test(collective, *tunable, setup));
    chosen = ChosenTable{.table = TRY(select_table(std::string(tunable->backend()), tests))};
  }
  tunable->use(chosen->table);
  return chosen;
}

Json chosen_to_json(const std::optional<ChosenTable>& chosen) {
  if (!chosen) return {};
  Json json = table_to_json(chosen->table);
  json.set("is_kept", chosen->is_kept);
  return json;
}

}  // namespace plimsoll
