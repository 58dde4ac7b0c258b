// RankLedger: the rows of one rank, whatever it runs on: CPU or device terms, with the figures that
// were assumed or learned in their place.
#pragma once

#include <vector>

#include "shared/memory/memory_fit.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/memory_terms.h"

namespace plimsoll {

// All terms but KV.
TermBytes ledger_bytes(const FitInputs& in, const RankShape& rank, const StepShape& step);
// Rows in the order in which they appear; those of a device leave out what is nothing. Without KV.
std::vector<PlanRow> ledger_rows(const FitInputs& in, const RankShape& rank, const StepShape& step);
PlanRow kv_row(const FitInputs& in, const RankShape& rank, Blocks blocks, KvType type);

// Weights of every kind, loaded before KV is sized.
Bytes static_bytes(const TermBytes& bytes);
// That a process takes before it asks how much is free: context and communicators.
Bytes start_bytes(const TermBytes& bytes);

inline Bytes rank_block_bytes(const RankShape& rank) {
  return kKvBlockTokens * rank.kv_token_bytes;
}

}  // namespace plimsoll
