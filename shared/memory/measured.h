// Measured: what one rank holds, by the plan's terms: said by its worker, compared by the daemon.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/base/units.h"

namespace plimsoll {

// Source of a CPU rank's figures: /proc/PID/smaps_rollup. Its `free` is the machine's or the
// cgroup's, which all ranks share.
constexpr std::string_view kPssSource = "PSS";

struct Measured {
  // By term, "weights"; what a plan has no row for has a name of its own. Memory that has been
  // taken and not touched yet counts. Without KV; a term that is made later is absent.
  std::map<std::string, Bytes, std::less<>> terms;
  std::string source;           // of the figures that nobody counted: "PSS", "simulated device"
  Bytes resident = 0;           // of this rank now, KV included, by that source
  Bytes kv_committed = 0;       // taken for KV
  Bytes kv_touched = 0;         // the part of it that has held tokens
  std::optional<Bytes> free;    // that the rank's device has left now; of a CPU, the machine
  Bytes neighbours = 0;         // on the device that other processes hold
  std::optional<Bytes> cgroup;  // that the rank's cgroup holds, other ranks of it included

  Bytes sum() const;  // of all terms
};

Json measured_to_json(const Measured& measured);
// Members that are absent keep their default. Errors: invalid, naming the member.
Result<Measured> measured_from_json(const Json& json);

}  // namespace plimsoll
