// Attention: rotates, stores K and V, and attends causally over the paged cache, on the CPU.
//
// One fork and join a call, in three phases with barriers between: rotate and store (each kv head's
// tokens), attend, merge. Attention is cut into units (sequence, kv head, tile of query tokens, KV
// split); each thread gets a contiguous range of units of about equal cost.
//
// Batch invariance: a row's arithmetic is the same in every tile. Scores are summed over head_dim
// in order; a split of kSplitTokens keys walks its blocks in order with an online softmax that
// starts empty; splits are folded in order from the first. Keys after the query's position take no
// part: their scores are replaced and their values never read.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/thread_team.h"
#include "shared/base/units.h"

namespace plimsoll {

const AttentionKernel& attention_kernel(CpuPath path);

Bytes attention_scratch_bytes(const BackendLimits& limits, int threads);

// REQUIRES: the shapes of op_checks.cc; head_dim a multiple of 8; scratch of
// attention_scratch_bytes(), 64-byte aligned; nobody else uses the team meanwhile.
void run_attention(const AttentionCall& call, const AttentionKernel& kernel, ThreadTeam& team,
                   std::span<std::byte> scratch);

}  // namespace plimsoll
