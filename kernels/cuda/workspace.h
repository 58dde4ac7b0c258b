// Workspace: the CUDA backend's scratch memory, carved out of one piece. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::cuda {

constexpr Bytes kWorkspaceAlignment = 256;

// In the order in which it is carved.
struct Workspace {
  std::int8_t* quants = nullptr;  // inputs of a linear, quantised
  ActivationScale* scales = nullptr;
  float* values = nullptr;       // the same, where a weight's kernel takes f32
  std::int32_t* ids = nullptr;   // [tokens]
  std::int32_t* rows = nullptr;  // [tokens]: of logits
  std::byte* tables = nullptr;   // StepTables
  float* partial_out = nullptr;  // of attention's splits
  float* partial_max = nullptr;
  float* partial_sum = nullptr;
};

// Its pointers into `memory`, which is aligned; the bytes that it takes (with nullptr only these).
Bytes carve_workspace(const BackendLimits& limits, std::byte* memory, Workspace& space);

}  // namespace plimsoll::cuda
