// StepMessage: the longest message of a step in the ring between ranks, for who plans and who
// sends.
//
// The layout is worker/schedule's; the plan must know its length, since the ring does not grow.
#pragma once

#include <cstdint>

#include "shared/base/replica_segment.h"
#include "shared/base/units.h"

namespace plimsoll {

constexpr Bytes kStepWordBytes = 4;
constexpr std::int64_t kStepHeaderWords = 5;    // kind and four counts
constexpr std::int64_t kStepSequenceWords = 5;  // of each sequence
constexpr Bytes kRingLengthBytes = 4;           // before every message in the ring

// Without the length before it.
constexpr Bytes step_message_bytes(Tokens rows, std::int64_t sequences, Blocks blocks,
                                   std::int64_t logit_rows) {
  return kStepWordBytes *
         (kStepHeaderWords + rows + kStepSequenceWords * sequences + blocks + logit_rows);
}

// KV blocks that a step can name so that it fits in the ring; negative where not even the rest
// does.
constexpr Blocks ring_blocks_max(Tokens rows, std::int64_t sequences, std::int64_t logit_rows) {
  const Bytes left =
      kStepRingBytesDefault - kRingLengthBytes - step_message_bytes(rows, sequences, 0, logit_rows);
  return left < 0 ? -1 : left / kStepWordBytes;
}

}  // namespace plimsoll
