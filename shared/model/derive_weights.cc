#include "shared/model/derive_weights.h"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/model/element_type.h"
#include "shared/model/weight_groups.h"
#include "shared/model/weight_table.h"

namespace plimsoll {
namespace {

// Beyond this a size is a mistake; it keeps sums of all weights inside 63 bits.
constexpr Bytes kTensorBytesMax = Bytes{1} << 50;

constexpr std::string_view kWhatWorks =
    "; with the headers of the safetensors files beside it the weights can be read instead";

class Deriver {
 public:
  explicit Deriver(const HfConfig& config) : config_(config), groups_(config.spec) {}

  Result<std::vector<WeightGroup>> derive() {
    for (const WeightRow& row : weight_table()) {
      if (row.where == Where::model && is_there(row)) TRY(add_row(row, std::string(row.hf), 1));
    }
    const ModelSpec& spec = config_.spec;
    for (std::int64_t layer = 0; layer < spec.layers + spec.mtp_layers; ++layer) {
      TRY(add_layer(layer));
    }
    if (config_.vision) TRY(add_vision());
    return groups_.take();
  }

 private:
  bool is_there(const WeightRow& row) const {
    return !row.hf.empty() && (config_.features & row.needs) == row.needs &&
           (config_.features & row.excludes) == 0;
  }

  // A drafting layer is like the last ordinary one, and has rows of its own.
  Status add_layer(std::int64_t layer) {
    const ModelSpec& spec = config_.spec;
    const bool drafts = layer >= spec.layers;
    const auto like = static_cast<std::size_t>(drafts ? spec.layers - 1 : layer);
    const bool has_experts = config_.has_experts[like];
    const std::string prefix = fmt::format("{}layers.{}.", config_.prefix, layer);
    for (const WeightRow& row : weight_table()) {
      const bool is_here =
          row.where == Where::layer || (row.where == Where::dense_layer && !has_experts) ||
          ((row.where == Where::expert_layer || row.where == Where::expert) && has_experts) ||
          (row.where == Where::mtp_layer && drafts);
      if (!is_here || !is_there(row)) continue;
      std::string module = prefix + std::string(row.hf);
      if (row.where == Where::expert) {
        module.replace(module.find('*'), 1, "0");
        TRY(add_row(row, module, spec.experts.count));
      } else {
        TRY(add_row(row, module, 1));
      }
    }
    return {};
  }

  Status add_row(const WeightRow& row, const std::string& module, std::int64_t count) {
    const std::int64_t rows = dim_size(config_.spec, row.rows);
    if (row.stored == Stored::f32) return add(module, "F32", {rows}, count);
    if ((config_.features & row.bias) != 0) {
      TRY(add(module + ".bias", config_.plain_type, {rows}, count));
    }
    if (row.cols == Dim::none) return add(module + ".weight", config_.plain_type, {rows}, count);
    const std::int64_t cols = dim_size(config_.spec, row.cols);
    const MatrixScheme* scheme = TRY(scheme_of(config_.quantisation, row.stored, module));
    if (scheme == nullptr) return add(module + ".weight", config_.plain_type, {rows, cols}, count);
    for (MatrixTensor& tensor : matrix_tensors(*scheme, rows, cols, config_.plain_type)) {
      TRY(add(fmt::format("{}.{}", module, tensor.suffix), tensor.type, std::move(tensor.shape),
              count));
    }
    return {};
  }

  Status add_vision() {
    for (CountedTensor& tensor : vision_tensors(*config_.vision)) {
      TRY(add(std::move(tensor.name), config_.plain_type, std::move(tensor.shape), tensor.count));
    }
    return {};
  }

  Status add(std::string name, std::string_view type_name, std::vector<std::int64_t> shape,
             std::int64_t count) {
    std::int64_t elements = count;
    bool is_huge = false;
    for (const std::int64_t size : shape) {
      is_huge = is_huge || __builtin_mul_overflow(elements, size, &elements);
    }
    const ElementType& type = *find_element_type(type_name);
    const auto all = element_bytes(type, elements);
    if (is_huge || !all || *all > kTensorBytesMax) {
      return invalid(fmt::format(
          "config.json describes weights {} of shape [{}], {} of them: more than any machine "
          "holds; is a size wrong?",
          name, fmt::join(shape, ", "), count));
    }
    return groups_.add_hf({std::move(name), std::string(type_name), std::move(shape), *all / count},
                          count);
  }

  const HfConfig& config_;
  WeightGroups groups_;
};

}  // namespace

Result<std::vector<WeightGroup>> derive_weights(const HfConfig& config) {
  if (!config.quantisation.unknown.empty()) {
    return invalid(fmt::format("{}, from which the weights cannot be derived{}",
                               config.quantisation.unknown, kWhatWorks));
  }
  if (config.has_unknown_vision) {
    return invalid(fmt::format(
        "config.json describes a vision tower whose weights are not known to us{}", kWhatWorks));
  }
  return Deriver(config).derive();
}

}  // namespace plimsoll
