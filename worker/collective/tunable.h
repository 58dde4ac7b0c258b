// Tunable: a collective that has several algorithms for the same sums, all with the same bits, and
// takes one by the size of a message.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/collective/backend_table.h"

namespace plimsoll {

class Collective;

class Tunable {
 public:
  virtual ~Tunable() = default;

  virtual std::string_view backend() const = 0;  // "shm"
  // The first is taken unless another is clearly faster.
  virtual std::span<const std::string_view> algorithms() const = 0;
  // Whether sums are those of ranks in order, rounded once, to the last bit.
  virtual bool is_exact() const { return true; }
  // From the next call on; on every rank before the same call. REQUIRES: its algorithms are ours.
  virtual void use(const BackendTable& table) = 0;

  // --- for tests of calls that run on a device ---

  // The same ranks', over host memory: by which they tell each other what came of a test. nullptr:
  // the collective itself, whose calls have ended when they return.
  virtual Collective* host() { return nullptr; }
  // A call that a peer does not join gives up after so long; nullopt: as before.
  virtual void limit_calls(std::optional<Duration> patience) { (void)patience; }
  // Whether a call that has run gave up. Errors: it did so since the group was aborted.
  virtual Result<bool> has_late_calls() { return false; }
  // On all ranks, when none has calls under way: what comes is as if no call had been late.
  virtual Status forget_late_calls() { return {}; }
};

}  // namespace plimsoll
