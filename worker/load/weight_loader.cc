#include "worker/load/weight_loader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/dequantise.h"
#include "shared/base/check.h"

namespace plimsoll {
namespace {

// One load under way.
class Loader {
 public:
  Loader(const GgufFile& file, Backend& backend, Arena& arena, ArenaWeights state)
      : file_(file), backend_(backend), arena_(arena), state_(state) {}

  Status load_matrix(const MatrixPlan& plan, PackedMatrix& matrix) {
    for (const WeightSlice& slice : plan.parts) {
      const std::string context = fmt::format("load {}: ", slice.weight->name);
      const auto destination =
          TRY_CONTEXT(context, arena_.take(Term::weights, slice_bytes(slice), slice.weight->name));
      const StoredSlice stored{.dtype = slice.weight->dtype,
                               .bytes = file_.bytes_of(*slice.weight),
                               .cols_total = slice.weight->cols(),
                               .row_begin = slice.rows.begin,
                               .row_end = slice.rows.end,
                               .col_begin = slice.cols.begin,
                               .col_end = slice.cols.end};
      matrix.parts.push_back(PackedPart{.dtype = stored.dtype,
                                        .rows = slice.rows.size(),
                                        .cols = slice.cols.size(),
                                        .data = destination.data()});
      matrix.rows += matrix.parts.back().rows;
      matrix.cols = matrix.parts.back().cols;
      if (state_ == ArenaWeights::packed) continue;
      matrix.parts.back() = TRY_CONTEXT(context, backend_.pack(stored, destination));
      drop(*slice.weight);
    }
    matrix.segment_cols = plan.segment_cols;
    return {};
  }

  Status load_vector(const VectorPlan& plan, const float*& vector) {
    const auto destination = TRY_CONTEXT(fmt::format("load {}: ", plan.name),
                                         arena_.take(Term::weights, plan.bytes, plan.name));
    vector = reinterpret_cast<const float*>(destination.data());
    if (state_ == ArenaWeights::packed) return {};
    std::vector<float> values;
    for (const VectorSlice& part : plan.parts) {
      std::vector<float> whole(static_cast<std::size_t>(part.weight->cols()));
      dequantise(part.weight->dtype, file_.bytes_of(*part.weight).data(), part.weight->cols(),
                 whole.data());
      values.insert(values.end(), whole.begin() + part.range.begin, whole.begin() + part.range.end);
      drop(*part.weight);
    }
    const auto bytes = std::as_bytes(std::span(values));
    CHECK(bytes.size() <= destination.size());
    if (DeviceMemory* device = backend_.device_memory()) {
      return device->write(bytes, destination.data());
    }
    std::ranges::copy(bytes, destination.begin());
    return {};
  }

 private:
  void drop(const WeightInfo& weight) const {
    file_.file().drop(static_cast<std::size_t>(weight.offset),
                      static_cast<std::size_t>(weight.bytes));
  }

  const GgufFile& file_;
  Backend& backend_;
  Arena& arena_;
  ArenaWeights state_;
};

Error no_place(std::string_view name) {
  return internal_error(fmt::format("load {}: the graph has no place for it", name));
}

}  // namespace

Result<ModelWeights> load_weights(const GgufFile& file, const ModelSpec& spec,
                                  const RankShard& shard, Backend& backend, Arena& arena,
                                  ArenaWeights arena_weights,
                                  const std::function<void(const LoadProgress&)>& progress) {
  const RankWeights plan = rank_weights(spec, shard);
  LoadProgress state{.done = 0, .total = plan.bytes()};
  Loader loader(file, backend, arena, arena_weights);
  ModelWeights weights(spec);
  const auto advance = [&](Bytes bytes) {
    state.done += bytes;
    progress(state);
  };
  for (const MatrixPlan& matrix : plan.matrices) {
    PackedMatrix* place = weights.matrix(matrix.name);
    if (place == nullptr) return no_place(matrix.name);
    TRY(loader.load_matrix(matrix, *place));
    advance(matrix.packed_bytes);
  }
  for (const VectorPlan& vector : plan.vectors) {
    const float** place = weights.vector(vector.name);
    if (place == nullptr) return no_place(vector.name);
    TRY(loader.load_vector(vector, *place));
    advance(vector.bytes);
  }
  return weights;
}

}  // namespace plimsoll
