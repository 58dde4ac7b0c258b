// StepRecorder: decode steps of common batch sizes, recorded once and run again at once, where the
// backend can: without it a GPU waits for the host between kernels.
//
// A step of fewer rows than a size is filled up with rows on the KV cache's null block. Bits are
// those of the same step outside a recording.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/row_sampler.h"
#include "shared/base/result.h"
#include "worker/graph/decoder.h"

namespace plimsoll {

class StepRecorder {
 public:
  struct Parts {
    Backend* backend = nullptr;  // that can record
    Decoder* decoder = nullptr;
    const KvCache* cache = nullptr;   // with the null block, in its final place
    std::vector<std::int64_t> sizes;  // of batches, ascending
    Tokens rows_max = 0;              // of a step
    Tokens context_length = 0;
    std::int64_t vocab = 0;
  };
  // Runs steps of one row, a few and many, so that whatever a kernel needs once is there; then
  // records. Errors: the backend's. REQUIRES: everything pointed at outlives it.
  static Result<StepRecorder> create(Parts parts);

  // Whether the step is one row of each sequence, all with logits, and no more than were recorded.
  bool serves(const Decoder::Input& input) const;
  // REQUIRES: serves(input). The logits of its rows.
  Result<TensorView> run(const Decoder::Input& input);
  // Whether the backend can draw tokens from the logits.
  bool samples() const { return sampling_ != nullptr && sampling_->can_sample(parts_.vocab); }
  // A token of each of its rows. REQUIRES: samples(), serves(input).
  Result<RowSampling::Sampled> run(const Decoder::Input& input,
                                   std::span<const cuda::RowSample> rows);

 private:
  explicit StepRecorder(Parts parts);
  Status warm_up(Tokens rows);
  Status record(std::int64_t rows);
  DecodeInputs fill(const Decoder::Input& input);
  // Rows [begin, end) on the null block, each in a slot of its own.
  void pad(std::int64_t begin, std::int64_t end);

  Parts parts_;
  RowSampling* sampling_ = nullptr;
  std::vector<std::int32_t> ids_;
  std::vector<std::int32_t> logit_rows_;  // 0, 1, 2 ...
  std::vector<SequenceRows> sequences_;
};

}  // namespace plimsoll
