#include "kernels/cuda/workspace.h"

#include "kernels/cuda/launches.h"
#include "kernels/cuda/step_tables.h"

namespace plimsoll::cuda {
namespace {

class Carver {
 public:
  explicit Carver(std::byte* begin) : begin_(begin) {}
  template <typename T>
  T* take(std::int64_t count) {
    const Bytes at = bytes_;
    bytes_ += round_up(count * static_cast<Bytes>(sizeof(T)), kWorkspaceAlignment);
    return begin_ == nullptr ? nullptr : reinterpret_cast<T*>(begin_ + at);
  }
  Bytes bytes() const { return bytes_; }

 private:
  std::byte* begin_;
  Bytes bytes_ = 0;
};

}  // namespace

Bytes carve_workspace(const BackendLimits& limits, std::byte* memory, Workspace& space) {
  Carver carver(memory);
  const std::int64_t partials = kPartialsMax * limits.heads_max;
  space.quants = carver.take<std::int8_t>(limits.tokens_max * limits.cols_max);
  space.scales =
      carver.take<ActivationScale>(limits.tokens_max * ceil_div(limits.cols_max, kSubBlockCols));
  space.values = carver.take<float>(limits.tokens_max * limits.cols_max);
  space.ids = carver.take<std::int32_t>(limits.tokens_max);
  space.rows = carver.take<std::int32_t>(limits.tokens_max);
  space.tables = carver.take<std::byte>(step_table_bytes(step_table_limits(limits)));
  space.partial_out = carver.take<float>(partials * limits.head_dim);
  space.partial_max = carver.take<float>(partials);
  space.partial_sum = carver.take<float>(partials);
  return carver.bytes();
}

}  // namespace plimsoll::cuda
