// OpChecks: the rules of every operation on shapes and types, for all backends.
//
// Pure. A backend calls them once an operation; kernels behind them assume valid input. What comes
// from a file (pack) is an error to report; in a step a failed check is a fault of ours.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "shared/base/result.h"

namespace plimsoll {

Status check_pack(const StoredSlice& slice, std::span<const std::byte> destination);
Status check_embed(const PackedMatrix& table, std::span<const std::int32_t> ids,
                   const TensorView& out);
Status check_add_normed(const TensorView& in, const Norm& norm, const TensorView& out);
Status check_linear(const LinearCall& call, const BackendLimits& limits);
Status check_attention(const AttentionCall& call, const BackendLimits& limits);

}  // namespace plimsoll
