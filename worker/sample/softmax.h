// Softmax: the passes over a whole row of logits that sampling needs, four lanes at a time.
//
// Plain SSE2 arithmetic without fused multiply-adds, so the same bits on every x86-64 machine and
// whatever path the kernels take.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace plimsoll {

// The largest logit. Nothing where one is NaN or +inf, or all are -inf.
std::optional<float> largest_logit(std::span<const float> logits);

// weights[i] = exp((logits[i] - max) * scale), relative error below 1e-6; below 1e-37: 0. Returns
// mass_of() them. REQUIRES: max is the largest logit; weights is as long as logits.
double softmax_weights(std::span<const float> logits, float max, float scale,
                       std::span<float> weights);
// One of them.
float softmax_weight(float logit, float max, float scale);

// Their sum in double, in an order that a GPU's blocks can follow (kernels/cuda/sample_rows.cu): by
// chunks of kMassChunk, one after the other; within a chunk in 32 lanes, then in halves.
constexpr std::size_t kMassChunk = 512;
double mass_of(std::span<const float> weights);
double mass_of_chunk(std::span<const float> weights);  // REQUIRES: at most kMassChunk

}  // namespace plimsoll
