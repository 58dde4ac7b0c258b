// LaunchDiff: what differs between two launches, most suspicious first, and why it matters.
//
// A launch is plain data here, whoever made it: a generation of ours, or what a SGLang or vLLM log
// says. What a change means for memory only a plan can tell: the caller brings a judge that knows.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/units.h"

namespace plimsoll {

struct Setting {
  std::string name;        // "mem-fraction-static", "NCCL_P2P_DISABLE", "driver"
  std::string value;       // as people write it: "0.88", "16GiB", "auto"
  std::string source;      // "flag", "auto", "default", "file", ...; empty: there is no such thing
  std::string place = {};  // "plimsoll.conf:12", "working.log:3"
};

// A number that a plan or a measurement gave.
struct Figure {
  std::string name;  // "kv", "weights", "kv tokens", "started in"
  double value = 0;
  std::string unit;  // "bytes", "tokens", "tokens/s", "s"
};

struct LaunchFacts {
  std::string label;    // "generation 12", "working.log"
  std::string outcome;  // "serving", "refused: ...", one line
  std::vector<Setting> options;
  std::vector<Setting> environment;  // machine, software and variables
  std::vector<Figure> figures;
};

enum class DifferenceKind { option, environment, figure };
const char* difference_kind_name(DifferenceKind kind);

struct Difference {
  DifferenceKind kind = DifferenceKind::option;
  std::string name;
  // A value is absent where that side does not have the setting at all.
  std::optional<std::string> before = {};
  std::optional<std::string> after = {};
  std::string before_source = {};  // "auto, working.log:3"
  std::string after_source = {};
  std::string why = {};  // a judge's words, else what is usually behind it; empty: nobody can tell
  double suspicion = 0;  // 0 to 1
};

// Why a difference matters. At 1 it alone decides between working and not.
struct Reason {
  std::string text;
  double suspicion = 0;
};
// nullopt: nothing is known about it, and general rules decide how suspicious it is.
using LaunchJudge = std::function<std::optional<Reason>(const Difference&)>;

// `before` is usually the one that worked. Options and environment first, most suspicious first;
// then figures, which are consequences, in the order of `after`. A default of one side that the
// other does not name is no difference. Names are compared as they are: see foreign_names.h.
std::vector<Difference> compare_launches(const LaunchFacts& before, const LaunchFacts& after,
                                         const LaunchJudge& judge = {});

// How suspicious a change of this setting is in itself (launch_suspects.h): what is known to decide
// over memory is high, what only names things (ports, folders, log levels) is low.
double usual_suspicion(DifferenceKind kind, std::string_view name);

// "10.43 GiB", "159,000 tokens", "38.0 tokens/s": a figure for people.
std::string figure_text(double value, std::string_view unit);

// One screen: a headline, then a line a difference with its reason; what is of no weight in one.
std::string launch_diff_text(const LaunchFacts& before, const LaunchFacts& after,
                             const std::vector<Difference>& differences);
// {"before": {label, outcome}, "after": ..., "differences": [{kind, name, before, after,
// before_source, after_source, why, suspicion}]}
Json launch_diff_json(const LaunchFacts& before, const LaunchFacts& after,
                      const std::vector<Difference>& differences);

}  // namespace plimsoll
