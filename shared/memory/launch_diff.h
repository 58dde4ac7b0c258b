// LaunchDiff: what differs between two launches, most suspicious first, and why it matters.
//
// Pure. A launch is a record of options with where each came from, of its surroundings and of the
// memory figures of its tightest rank; generations of ours and logs of other servers both become
// one. Names are those of our option table where it has the option (canonical_option(),
// launch_suspects.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/units.h"

namespace plimsoll {

struct LaunchValue {
  std::string name;        // "mem-fraction-static", "NCCL_P2P_LEVEL", "driver"
  std::string value;       // "0.88"
  std::string provenance;  // "flag", "auto, from that log"; empty: not known
};

// Of the rank with the least to spare. Unset: not known.
struct LaunchMemory {
  std::optional<Bytes> total;  // of the device
  std::optional<Bytes> base;   // free before weights
  std::optional<Bytes> weights;
  std::optional<Bytes> left;  // free after weights
  std::optional<Bytes> kv;    // what the sizing came to; below zero where it came to nothing
  std::optional<Tokens> kv_tokens;
  std::optional<Bytes> graphs;
  std::optional<Bytes> spare;  // free when all was in place
};

// Where it ended; what would help points in opposite directions.
enum class LaunchEnd {
  unknown,
  served,
  no_weights,  // weights did not fit
  no_kv,       // weights fit, and left too little for KV
  no_graphs,   // memory ran out while graphs were captured or shapes warmed up
  no_step,     // memory ran out while requests ran
  neighbour,   // other processes hold the memory
  other,
};
const char* launch_end_name(LaunchEnd end);  // "served", "no memory for KV", ...

struct LaunchRecord {
  std::string label;  // "sglang-working.log", "generation 7"
  LaunchEnd end = LaunchEnd::unknown;
  std::vector<LaunchValue> options;
  std::vector<LaunchValue> surroundings;  // devices, driver, versions, environment variables
  LaunchMemory memory;
};

enum class ChangeKind { option, surrounding, figure };
const char* change_kind_name(ChangeKind kind);

struct LaunchChange {
  ChangeKind kind = ChangeKind::option;
  std::string name;
  LaunchValue before;  // an empty value: absent there
  LaunchValue after;
  std::optional<Bytes> kv_before;  // KV with everything else as it was
  std::optional<Bytes> kv_after;
  std::string why;    // "KV 10.43 GiB -> -20.59 GiB"; empty: nothing is known about it
  int suspicion = 0;  // 0 to 100; what cannot matter is below kSuspicionMin
};
constexpr int kSuspicionMin = 10;

struct LaunchFigure {
  std::string name;    // "weights"
  std::string before;  // "72.29 GiB"; empty: not known
  std::string after;
};

struct LaunchDiff {
  std::vector<LaunchChange> changes;  // most suspicious first; then by name
  std::vector<LaunchFigure> figures;  // that at least one side knows, in order of a start
};

// KV bytes of a launch had one of its options another value; unset where that cannot be told.
using KvWith = std::function<std::optional<Bytes>(const LaunchRecord&, const LaunchValue&)>;
// SGLang's rule, of its two figures: left - base x (1 - fraction).
std::optional<Bytes> kv_with_fraction(const LaunchRecord& launch, const LaunchValue& value);

LaunchDiff diff_launches(const LaunchRecord& before, const LaunchRecord& after,
                         const KvWith& kv_with = kv_with_fraction);

// "mem-fraction-static 0.88 (auto, from that log) -> 0.55 (flag): KV 10.43 GiB -> -20.59 GiB".
std::string change_line(const LaunchChange& change);
// Heading, changes (those that cannot matter counted in one line), figures side by side.
std::string launch_diff_report(const LaunchDiff& diff, const LaunchRecord& before,
                               const LaunchRecord& after);
// {"changes": [{"kind", "name", "before", "after", "why", "suspicion", ...}], "figures": [...]}
Json launch_diff_to_json(const LaunchDiff& diff, const LaunchRecord& before,
                         const LaunchRecord& after);

}  // namespace plimsoll
