#include "kernels/cuda/row_sampler.h"

#include <algorithm>

#include "shared/base/check.h"

namespace plimsoll::cuda {
namespace {

constexpr unsigned kThreads = 256;

}  // namespace

Status RowSampler::start(DeviceRuntime& runtime, std::int64_t rows_max) {
  const auto memory = TRY(runtime.allocate_host(rows_max * kBytesARow, "drawing tokens"));
  const auto count = static_cast<std::size_t>(rows_max);
  rows_ = {reinterpret_cast<RowSample*>(memory.data()), count};
  tokens_ = {reinterpret_cast<std::int32_t*>(rows_.data() + count), count};
  return {};
}

void RowSampler::sample(DeviceRuntime& runtime, TensorView logits, std::span<const RowSample> rows,
                        std::byte* scratch) {
  CHECK(rows.size() <= rows_.size() && std::ssize(rows) <= logits.rows && fits(logits.cols));
  count_ = rows.size();
  if (rows.empty()) return;
  std::ranges::copy(rows, rows_.begin());
  auto* const rows_there = reinterpret_cast<RowSample*>(scratch);
  auto* const tokens_there = reinterpret_cast<std::int32_t*>(rows_there + rows.size());
  runtime.copy_in(rows_there, rows_.data(), rows.size_bytes());
  runtime.launch(Kernel::sample_rows,
                 {.grid = {static_cast<unsigned>(rows.size())}, .block = {kThreads}},
                 SampleArguments{.logits = logits.f32(),
                                 .stride = logits.stride,
                                 .vocab = static_cast<std::int32_t>(logits.cols),
                                 .rows = rows_there,
                                 .tokens = tokens_there});
  runtime.copy_out(tokens_.data(), tokens_there, rows.size() * sizeof(std::int32_t));
}

}  // namespace plimsoll::cuda
