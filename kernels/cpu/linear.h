// Linear: out = epilogue(rms_norm(in) · Wᵀ) over packed weights, on a team of threads.
//
// One fork and join a call. Each thread has its own contiguous range of 16-row groups (of a gated
// weight: the same range of gate and up). Activations are normed and quantised once a call into
// panels (linear_kernel.h): by each thread for itself when there are few tokens, else shared by all
// threads behind one barrier. Many tokens are taken in chunks whose panels stay in the second-level
// cache, while a group's weights stay in the first.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/linear_kernel.h"
#include "kernels/cpu/thread_team.h"

namespace plimsoll {

// Scratch that `run_linear` needs for any call within the limits.
Bytes linear_scratch_bytes(const BackendLimits& limits, int threads);

// REQUIRES: check_linear(call, limits) passed; scratch of linear_scratch_bytes, 64-byte aligned.
void run_linear(const LinearCall& call, const LinearKernel& kernel, Activations activations,
                ThreadTeam& team, std::span<std::byte> scratch);

// out[i] = scale * row ids[i]. REQUIRES: check_embed passed.
void run_embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale,
               const TensorView& out);

// out += rms_norm(in), then in = 0. REQUIRES: check_add_normed passed.
void run_add_normed(const TensorView& in, const Norm& norm, const TensorView& out,
                    const LinearKernel& kernel, ThreadTeam& team);

}  // namespace plimsoll
