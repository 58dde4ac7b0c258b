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

// What it keeps back by itself, for graphs and activations, and the same in words.
struct SglangReserve {
  Bytes bytes = 0;
  std::string formula;  // "512 + 1.5 x 8,192 tokens + 1,024 x 8 / 8 + 2 x 128 MiB"
};
SglangReserve sglang_reserve(const ForeignLog& log);
// Of three digits, as its own rule would choose with these arguments; nullopt where no free memory
// is known. It divides by the device's total, which a log rarely tells: free memory stands for it.
std::optional<double> sglang_auto_fraction(const ForeignLog& log);

// Whether its automatic rules, old or new, could have chosen this fraction here.
bool may_be_automatic(double fraction, const ForeignLog& log);

// Fills in ForeignArg::origin.
void infer_sglang_origins(ForeignLog& log);

}  // namespace plimsoll
