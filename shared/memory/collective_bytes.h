// CollectiveBytes: the buffer that a rank with CUDA kernels shares with its peers, who write their
// partial sums to it.
#pragma once

#include "shared/base/units.h"

namespace plimsoll {

// On a GPU: what vLLM takes for the same, two halves of 12 MiB. One shot of two ranks takes 3 MiB
// of f64 sums a call of them, longer messages several calls.
constexpr Bytes kIpcBytes = 24 * kMiB;
// On the host executor.
constexpr Bytes kHostIpcBytes = kMiB;
constexpr int kIpcRanks = 8;  // at most
// That NCCL may use, of the buffers that it makes a channel and connection.
constexpr int kNcclChannels = 8;

}  // namespace plimsoll
