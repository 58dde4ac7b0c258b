#include "worker/graph/step_recorder.h"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

namespace plimsoll {
namespace {

constexpr std::int32_t kNullTable[] = {kNullBlock};
// Each takes other kernels: of one row, of a few, and of prompts.
constexpr Tokens kWarmUpRows[] = {1, 2, 17};

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

StepRecorder::StepRecorder(Parts parts)
    : parts_(std::move(parts)), sampling_(row_sampling(*parts_.backend)) {
  const std::size_t largest = parts_.sizes.empty() ? 0 : index(parts_.sizes.back());
  ids_.resize(largest);
  sequences_.resize(largest);
  logit_rows_.resize(largest);
  std::iota(logit_rows_.begin(), logit_rows_.end(), 0);
}

Result<StepRecorder> StepRecorder::create(Parts parts) {
  StepRecorder recorder(std::move(parts));
  for (const Tokens rows : kWarmUpRows) TRY(recorder.warm_up(rows));
  // The largest first: what smaller ones need is there then.
  for (const std::int64_t size : std::views::reverse(recorder.parts_.sizes)) {
    TRY(recorder.record(size));
  }
  return recorder;
}

Status StepRecorder::warm_up(Tokens rows) {
  if (rows > std::min(parts_.rows_max, parts_.context_length)) return {};
  const std::vector<std::int32_t> ids(index(rows), 0);
  const SequenceRows sequence{.row = 0, .tokens = rows, .position = 0, .blocks = kNullTable};
  const std::int32_t last = static_cast<std::int32_t>(rows - 1);
  TRY(parts_.decoder->run({.ids = ids,
                           .sequences = std::span(&sequence, 1),
                           .logit_rows = std::span(&last, 1),
                           .cache = parts_.cache}));
  return {};
}

Status StepRecorder::record(std::int64_t rows) {
  pad(0, rows);
  return parts_.backend->record(rows, [&]() -> Status {
    TRY(parts_.decoder->compute({.ids = std::span(ids_).first(index(rows)),
                                 .sequences = std::span(sequences_).first(index(rows)),
                                 .logit_rows = std::span(logit_rows_).first(index(rows)),
                                 .cache = parts_.cache}));
    return {};
  });
}

void StepRecorder::pad(std::int64_t begin, std::int64_t end) {
  const Tokens slots = std::min(kKvBlockTokens, parts_.context_length);
  for (std::int64_t row = begin; row < end; ++row) {
    ids_[index(row)] = 0;
    sequences_[index(row)] = {
        .row = row, .tokens = 1, .position = (row - begin) % slots, .blocks = kNullTable};
  }
}

bool StepRecorder::serves(const Decoder::Input& input) const {
  const std::int64_t rows = std::ssize(input.ids);
  if (parts_.sizes.empty() || rows > parts_.sizes.back()) return false;
  return std::ssize(input.sequences) == rows && std::ssize(input.logit_rows) == rows;
}

DecodeInputs StepRecorder::fill(const Decoder::Input& input) {
  const std::int64_t rows = std::ssize(input.ids);
  const std::int64_t size = *std::ranges::lower_bound(parts_.sizes, rows);
  std::ranges::copy(input.ids, ids_.begin());
  std::ranges::copy(input.sequences, sequences_.begin());
  pad(rows, size);
  return {.ids = std::span(ids_).first(index(size)),
          .sequences = std::span(sequences_).first(index(size)),
          .logit_rows = std::span(logit_rows_).first(index(size))};
}

Result<TensorView> StepRecorder::run(const Decoder::Input& input) {
  const TensorView logits = TRY(parts_.backend->replay(fill(input)));
  return parts_.decoder->collect(logits.slice_rows(0, std::ssize(input.ids)));
}

Result<RowSampling::Sampled> StepRecorder::run(const Decoder::Input& input,
                                               std::span<const cuda::RowSample> rows) {
  return sampling_->replay_and_sample(fill(input), rows);
}

}  // namespace plimsoll
