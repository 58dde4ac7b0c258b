#include "tools/gpu_check/bench_backend.h"

#include <cstdlib>
#include <cstring>

namespace plimsoll {
namespace {

constexpr Bytes kAlignment = 256;

}  // namespace

void BenchBackend::Free::operator()(std::byte* memory) const {
  std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc): of aligned_alloc
}

Result<std::span<std::byte>> BenchBackend::take(Bytes bytes) {
  if (DeviceMemory* device = backend_.device_memory()) return device->allocate(bytes, "a test");
  const auto size = static_cast<std::size_t>(round_up(std::max<Bytes>(bytes, 1), kAlignment));
  memory_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size)));
  if (memory_.back() == nullptr) return does_not_fit("allocate " + format_bytes(bytes));
  std::memset(memory_.back().get(), 0, size);
  return std::span(memory_.back().get(), static_cast<std::size_t>(bytes));
}

Status BenchBackend::set_limits(const BackendLimits& limits) {
  return backend_.set_workspace(limits, TRY(take(backend_.workspace_bytes(limits))));
}

Result<TensorView> BenchBackend::take_f32(std::int64_t rows, std::int64_t cols) {
  const auto memory = TRY(take(rows * cols * static_cast<Bytes>(sizeof(float))));
  return f32_view(reinterpret_cast<float*>(memory.data()), rows, cols);
}

Result<const float*> BenchBackend::put(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  const auto memory = TRY(take(std::ssize(bytes)));
  if (DeviceMemory* device = backend_.device_memory()) {
    TRY(device->write(bytes, memory.data()));
  } else {
    std::memcpy(memory.data(), bytes.data(), bytes.size());
  }
  return reinterpret_cast<const float*>(memory.data());
}

Result<PackedMatrix> BenchBackend::pack(DType dtype, std::int64_t rows, std::int64_t cols,
                                        std::span<const std::byte> stored) {
  const auto memory = TRY(take(packed_bytes(dtype, rows, cols)));
  const PackedPart part = TRY(backend_.pack({.dtype = dtype,
                                             .bytes = stored,
                                             .cols_total = cols,
                                             .row_begin = 0,
                                             .row_end = rows,
                                             .col_begin = 0,
                                             .col_end = cols},
                                            memory));
  return PackedMatrix{.parts = {part}, .rows = rows, .cols = cols};
}

Result<std::vector<float>> BenchBackend::get(TensorView from) {
  std::vector<float> values(static_cast<std::size_t>(from.rows * from.cols));
  const TensorView read = TRY(backend_.read(from, values));
  if (read.data != values.data()) {
    std::memcpy(values.data(), read.data, values.size() * sizeof(float));
  }
  return values;
}

std::vector<float> random_floats(std::int64_t count, float spread, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace plimsoll
