// RecordedSteps: which recordings decode steps of a batch size need, and which of them a step is
// served by. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device_runtime.h"
#include "kernels/tensor.h"

namespace plimsoll::cuda {

struct RecordedStep {
  std::int64_t rows = 0;
  std::int64_t splits = 0;  // of attention, each a block; 1: one block goes through all of them
  Recording recording = {};
  TensorView from = {};  // what is read at its end
  std::span<float> to = {};
};

// Attention's splits are blocks of their own while there are few of them, as outside recordings;
// where long contexts have too many of them, a second recording has none.
class RecordedSteps {
 public:
  // Those of `rows` rows, to be filled; valid until the next call. REQUIRES: new rows.
  std::span<RecordedStep> add(std::int64_t rows, std::int64_t context_max);
  // REQUIRES: add(rows, ...), with contexts of so many splits.
  const RecordedStep& find(std::int64_t rows, std::int64_t splits) const;

 private:
  std::vector<RecordedStep> steps_;
};

}  // namespace plimsoll::cuda
