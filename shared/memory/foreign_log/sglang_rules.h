// SglangRules: how SGLang sizes KV and picks its fraction, and what that says about where a logged
// value came from. Facts and versions: MEMORY.md of the reference; the rule is that of 0.5.
#pragma once

#include <optional>
#include <string>

#include "shared/base/units.h"
#include "shared/memory/foreign_log/foreign_log.h"

namespace plimsoll {

// left - base x (1 - fraction), to the byte.
Bytes sglang_kv(Bytes base, Bytes left, double fraction);
// The smallest fraction of three digits that leaves at least `kv` (at least one byte); nullopt: not
// even 1 does.
std::optional<double> sglang_fraction_for(Bytes base, Bytes left, Bytes kv);

// Why nothing is left for KV, in words; `filled` is the share that weights fill alone, `kv` what
// the rule gives: where that is more than nothing, the log does not say why.
std::string sglang_no_kv_reason(const std::string& fraction, double filled, Bytes kv);

// What it would choose with these arguments where the fraction is left out; nullopt where no free
// memory is known. By its reserve, with the defaults of such a device where an argument is unset;
// before 0.4.7 by a table. The reserve is of the device's total, which a log rarely tells: free
// memory stands for it.
struct SglangChoice {
  double fraction = 0;  // of three digits
  double most = 0;      // of the largest device that may have had this much free
  std::string words;    // "keeps back 13.75 GiB (...), which is about 0.854"
};
std::optional<SglangChoice> sglang_choice(const ForeignLog& log);

// Whether its automatic rules, old or new, could have chosen this fraction here.
bool may_be_automatic(double fraction, const ForeignLog& log);

// Where it chose the fraction and did not say it, by what it left for KV.
void infer_sglang_fraction(ForeignLog& log);
// Fills in ForeignArg::origin.
void infer_sglang_origins(ForeignLog& log);

}  // namespace plimsoll
