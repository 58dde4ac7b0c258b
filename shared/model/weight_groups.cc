#include "shared/model/weight_groups.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/model/vision.h"
#include "shared/model/weight_table.h"

namespace plimsoll {
namespace {

// What a tensor of a quantised matrix holds; a matrix [N, K] has several.
enum class Component {
  values,
  packed,       // several elements of a row to a word
  packed_rows,  // several rows to a word
  scales,       // one for a block of rows and columns
  flat,         // what belongs to the elements in their order, rows after rows
  bias,         // one a row
  index,        // one a column
  scalar,
  note,
};

struct Suffix {
  std::string_view name;
  Component component;
  bool transposed = false;  // stored as [K, N]
};

constexpr std::array kSuffixes = {
    Suffix{"weight", Component::values},
    Suffix{"bias", Component::bias},
    // compressed-tensors
    Suffix{"weight_packed", Component::packed},
    Suffix{"weight_scale", Component::scales},
    Suffix{"weight_zero_point", Component::packed_rows},
    Suffix{"weight_shape", Component::note},
    Suffix{"weight_g_idx", Component::index},
    Suffix{"weight_global_scale", Component::scalar},
    Suffix{"input_global_scale", Component::scalar},
    // FP8 and NVFP4
    Suffix{"weight_scale_inv", Component::scales},
    Suffix{"weight_scale_2", Component::scalar},
    Suffix{"input_scale", Component::scalar},
    Suffix{"k_scale", Component::scalar},
    Suffix{"v_scale", Component::scalar},
    // bitsandbytes: 8 bits, then those of 4
    Suffix{"SCB", Component::bias},
    Suffix{"weight_format", Component::note},
    Suffix{"weight.absmax", Component::flat},
    Suffix{"weight.quant_map", Component::scalar},
    Suffix{"weight.nested_absmax", Component::scalar},
    Suffix{"weight.nested_quant_map", Component::scalar},
    Suffix{"weight.quant_state.bitsandbytes__nf4", Component::note},
    Suffix{"weight.quant_state.bitsandbytes__fp4", Component::note},
    // AWQ and GPTQ
    Suffix{"qweight", Component::packed, true},
    Suffix{"qzeros", Component::packed_rows, true},
    Suffix{"scales", Component::scales, true},
    Suffix{"g_idx", Component::index},
};

// Where in the model a tensor belongs, by its name.
struct Place {
  WeightPart part = WeightPart::other;  // where no row is found
  const WeightRow* row = nullptr;
  Component component = Component::values;
  bool transposed = false;
  std::int64_t layer = -1;  // -1: of no layer
};

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Cuts "...layers.17.rest" into 17 and "rest"; false where there is no such part.
bool split_layer(std::string_view name, std::string_view marker, std::int64_t& layer,
                 std::string_view& rest) {
  const bool leads = name.starts_with(marker.substr(1));
  const std::size_t at = leads ? 0 : name.find(marker);
  if (at == std::string_view::npos) return false;
  const std::string_view tail = name.substr(at + marker.size() - (leads ? 1 : 0));
  const std::size_t dot = tail.find('.');
  if (dot == std::string_view::npos) return false;
  const auto found = number(tail.substr(0, dot));
  if (!found) return false;
  layer = *found;
  rest = tail.substr(dot + 1);
  return true;
}

// "self_attn.q_proj.weight_packed" to the row of "self_attn.q_proj" and what its suffix means.
void find_row(std::string_view rest, Place& place) {
  if (const WeightRow* row = find_hf_row(rest)) {
    place.row = row;
    return;
  }
  for (std::size_t dot = rest.rfind('.'); dot != std::string_view::npos && dot > 0;
       dot = rest.rfind('.', dot - 1)) {
    const auto* suffix = std::ranges::find(kSuffixes, rest.substr(dot + 1), &Suffix::name);
    if (suffix == kSuffixes.end()) continue;
    place.row = find_hf_row(rest.substr(0, dot));
    place.component = suffix->component;
    place.transposed = suffix->transposed;
    return;
  }
}

Place hf_place(std::string_view name) {
  Place place;
  if (contains(name, "vision_tower.") || contains(name, "vision_model.")) {
    place.part = WeightPart::vision;
    return place;
  }
  if (contains(name, "mm_projector.") || contains(name, "multi_modal_projector.")) {
    place.part = WeightPart::projector;
    return place;
  }
  std::string_view rest;
  if (split_layer(name, ".layers.", place.layer, rest)) {
    find_row(with_stars(rest), place);
    return place;
  }
  // "language_model.model.norm.weight", "model.language_model.norm.weight", "model.norm.weight"
  for (const std::string_view known : {"model.embed_tokens", "model.norm", "lm_head"}) {
    const std::string_view leaf = known.substr(known.rfind('.') + 1);
    const std::size_t at = name.rfind(fmt::format("{}.", leaf));
    if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) continue;
    find_row(fmt::format("{}.{}", known, name.substr(at + leaf.size() + 1)), place);
    return place;
  }
  return place;
}

Place gguf_place(std::string_view name) {
  Place place;
  std::string_view rest = name;
  split_layer(name, ".blk.", place.layer, rest);
  const std::size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos) return place;
  place.row = find_gguf_row(rest.substr(0, dot));
  const bool is_bias = rest.substr(dot + 1) == "bias" && place.row && place.row->bias != 0;
  place.component = is_bias ? Component::bias : Component::values;
  return place;
}

// A dimension of `elements` that is stored as `length` entries: the elements of one entry.
// nullopt: it cannot be that dimension.
std::optional<std::int64_t> stored_unit(std::int64_t elements, std::int64_t length) {
  constexpr std::int64_t kScaleBlock = 128;
  if (length < 1 || length > elements) return std::nullopt;
  if (elements % length == 0) return elements / length;
  if (ceil_div(elements, kScaleBlock) == length) return kScaleBlock;
  const std::int64_t unit = ceil_div(elements, length);
  if (ceil_div(elements, unit) == length) return unit;
  return std::nullopt;
}

// Elements of 3 bits run on over words: 32 of them fill three.
constexpr std::int64_t kRunOfThreeBits = 32;
bool runs_over_words(Component component, std::int64_t elements, std::int64_t length) {
  const bool is_packed = component == Component::packed || component == Component::packed_rows;
  return is_packed && elements % kRunOfThreeBits == 0 && length == elements / kRunOfThreeBits * 3;
}

// The most elements that an entry of such a tensor stands for, along its rows or its columns.
std::int64_t unit_max(Component component, std::string_view type, std::int64_t elements,
                      bool is_rows) {
  switch (component) {
    case Component::values:
      return type == "U8" ? 2 : 1;  // NVFP4: two elements to a byte
    case Component::packed:
      return 32;
    case Component::packed_rows:  // of columns one for each group
      return is_rows ? 32 : elements;
    case Component::scales:
    case Component::flat:
      return elements;
    case Component::bias:
    case Component::index:
    case Component::scalar:
    case Component::note:
      return 1;
  }
  return 1;
}

struct Axes {
  std::optional<std::size_t> rows;
  std::optional<std::size_t> cols;
};

Axes axes_of(const Place& place, std::size_t dimensions) {
  switch (place.component) {
    case Component::bias:
      return {0, std::nullopt};
    case Component::index:
      return {std::nullopt, 0};
    case Component::scalar:
    case Component::note:
      return {};
    default:
      break;
  }
  if (dimensions == 0) return {};
  if (dimensions == 1 || place.row->cols == Dim::none) return {0, std::nullopt};
  // Stacked experts have one dimension more, outermost.
  const std::size_t first = dimensions - 2;
  return place.transposed ? Axes{first + 1, first} : Axes{first, first + 1};
}

struct Sized {
  const ModelSpec& model;
  const Tensor& tensor;
  const Place& place;
  std::int64_t block_length = 1;  // of the last dimension, which counts elements, as GGUF does
  std::string_view says = "config.json says";
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Error contradiction(const Sized& in) {
  const WeightRow& row = *in.place.row;
  const std::int64_t rows = dim_size(in.model, row.rows);
  return invalid(fmt::format("the weight {} has the shape {}; {} {}", to_valid_utf8(in.tensor.name),
                             shape_text(in.tensor.shape), in.says,
                             row.cols == Dim::none
                                 ? shape_text({rows})
                                 : shape_text({rows, dim_size(in.model, row.cols)})));
}

// Elements of one entry along an axis; 0 where the axis is not stored or has one entry for all.
Result<std::int64_t> unit_of(const Sized& in, std::optional<std::size_t> axis, Dim dim,
                             bool is_rows) {
  if (!axis || *axis >= in.tensor.shape.size() || dim == Dim::none) return std::int64_t{0};
  const std::int64_t elements = dim_size(in.model, dim);
  const std::int64_t length = in.tensor.shape[*axis];
  const std::int64_t most = unit_max(in.place.component, in.tensor.type, elements, is_rows);
  if (length == 1 && elements > 1 && most == elements) return std::int64_t{0};
  const auto unit = runs_over_words(in.place.component, elements, length)
                        ? std::optional<std::int64_t>(kRunOfThreeBits)
                        : stored_unit(elements, length);
  if (!unit || *unit > most) return contradiction(in);
  return *axis + 1 == in.tensor.shape.size() ? *unit * in.block_length : *unit;
}

// bitsandbytes keeps a matrix of 4-bit elements as one column of bytes, row after row.
bool is_flat(const Sized& in) {
  if (in.place.component == Component::flat) return true;
  const std::vector<std::int64_t>& shape = in.tensor.shape;
  const WeightRow& row = *in.place.row;
  return in.place.component == Component::values && in.tensor.type == "U8" && shape.size() == 2 &&
         shape[1] == 1 && row.cols != Dim::none &&
         shape[0] == ceil_div(dim_size(in.model, row.rows) * dim_size(in.model, row.cols), 2);
}

Result<Cut> cut_of(const Sized& in) {
  const WeightRow& row = *in.place.row;
  std::int64_t unit = 1;  // what is flat is divided in proportion
  if (!is_flat(in)) {
    const Axes axes = axes_of(in.place, in.tensor.shape.size());
    const std::int64_t row_unit = TRY(unit_of(in, axes.rows, row.rows, true));
    const std::int64_t col_unit = TRY(unit_of(in, axes.cols, row.cols, false));
    unit = row.cuts_columns ? col_unit : row_unit;
  }
  if (row.by == CutBy::nothing || unit == 0) return Cut{};
  const std::int64_t count = cut_count(in.model, row.by);
  const std::int64_t elements = dim_size(in.model, row.cuts_columns ? row.cols : row.rows);
  return Cut{row.by, row.cuts_columns, elements / count, count, unit};
}

Result<WeightGroup> classify(const Sized& in) {
  WeightGroup group{.name = with_stars(in.tensor.name),
                    .count = 0,
                    .type = in.tensor.type,
                    .shape = in.tensor.shape,
                    .bytes = in.tensor.bytes,
                    .part = in.place.part,
                    .cut = {}};
  const bool drafts = in.place.layer >= in.model.layers;
  const bool is_text = in.place.part == WeightPart::other;
  if (drafts && is_text && in.place.layer >= in.model.layers + in.model.mtp_layers) return group;
  if (group.part == WeightPart::vision && in.model.vision) {
    group.cut = vision_cut(*in.model.vision, in.tensor.name, in.tensor.shape);
  }
  if (in.place.row != nullptr) {
    group.part = in.place.component == Component::note ? WeightPart::file_only : in.place.row->part;
    group.cut = TRY(cut_of(in));
  }
  if (drafts && is_text && group.part != WeightPart::file_only) group.part = WeightPart::mtp;
  return group;
}

}  // namespace

std::string with_stars(std::string_view name) {
  std::string out;
  out.reserve(name.size());
  for (const std::string_view segment : split(name, '.')) {
    if (!out.empty() || segment.data() != name.data()) out += '.';
    const bool is_number =
        !segment.empty() && segment.find_first_not_of("0123456789") == std::string_view::npos;
    out += is_number ? "*" : segment;
  }
  return out;
}

Status WeightGroups::add_hf(const Tensor& tensor, std::int64_t count_of) {
  const Place place = hf_place(tensor.name);
  count(TRY(classify({.model = model_, .tensor = tensor, .place = place})), count_of);
  return {};
}

Status WeightGroups::add_gguf(const WeightInfo& weight) {
  const DTypeInfo& type = dtype_info(weight.dtype);
  const Tensor tensor{weight.name, std::string(type.name), weight.shape, weight.bytes};
  const Place place = gguf_place(weight.name);
  count(TRY(classify({.model = model_,
                      .tensor = tensor,
                      .place = place,
                      .block_length = type.block_length,
                      .says = "the metadata say"})),
        1);
  return {};
}

void WeightGroups::count(WeightGroup one, std::int64_t count_of) {
  std::vector<std::size_t>& places = places_[one.name];
  for (const std::size_t place : places) {
    WeightGroup& group = groups_[place];
    if (group.part == one.part && group.type == one.type && group.shape == one.shape) {
      group.count += count_of;
      return;
    }
  }
  places.push_back(groups_.size());
  one.count = count_of;
  groups_.push_back(std::move(one));
}

Result<std::vector<WeightGroup>> gguf_groups(const ModelSpec& model) {
  WeightGroups groups(model);
  for (const auto& [name, weight] : model.weights.all()) TRY(groups.add_gguf(weight));
  return groups.take();
}

}  // namespace plimsoll
