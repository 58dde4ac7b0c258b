// SelfTest: runs every algorithm of a collective on all ranks, with random data at the sizes that
// this model uses, checks each value against sums made here, and times them.
//
// All ranks call it with the same arguments, and all get the same result: what each has found goes
// round through host memory, which is the collective itself, by its first algorithm, where its sums
// are there too. It takes `budget` or a little more: sizes that it does not get to are those of the
// table's last row. On a device an algorithm that hangs is found after `patience` and left out;
// elsewhere it ends the start, at the collective's deadline, with the call and the rank that did
// not join it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/collective/backend_table.h"
#include "worker/collective/collective.h"
#include "worker/collective/tunable.h"

namespace plimsoll {

// Of a collective that is_on_device(): tensors of [rows, cols] that nothing else uses meanwhile.
struct SelfTestDevice {
  Backend* backend = nullptr;
  SumsView partial;
  TensorView sum;
};

struct SelfTestSetup {
  std::int64_t cols = 0;      // of a row: the model's hidden size
  std::int64_t rows_max = 0;  // of a step
  std::uint64_t seed = 1;
  Duration budget = milliseconds(100);
  Duration patience = seconds(15);  // with a call: a rank may get no processor for some of it
  std::optional<SelfTestDevice> device = {};
};

// Rows of the messages that are tried: 1, 4, 16, ... up to rows_max, and none above 2 MiB.
std::vector<std::int64_t> self_test_rows(const SelfTestSetup& setup);

// Tests them all. Errors: of the collective (a peer died; it was aborted).
Result<std::vector<AlgorithmTest>> run_self_test(Collective& collective, Tunable& tunable,
                                                 const SelfTestSetup& setup);

// Whether all that the table takes is there.
bool is_table_of(const BackendTable& table, const Tunable& tunable);

// Only whether what `table` takes for each size is right, one call each. Errors: as above.
Result<bool> verify_table(Collective& collective, Tunable& tunable, const BackendTable& table,
                          const SelfTestSetup& setup);

}  // namespace plimsoll
