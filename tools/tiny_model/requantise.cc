#include "tools/tiny_model/requantise.h"

#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/dequantise.h"
#include "tools/tiny_model/gguf_writer.h"
#include "tools/tiny_model/quantise.h"

namespace plimsoll {
namespace {

bool is_changed(const WeightInfo& weight) {
  return dtype_info(weight.dtype).block_length > 1 && weight.shape.size() == 2 &&
         weight.name != "token_embd.weight";
}

std::vector<std::byte> stored(const GgufFile& file, const WeightInfo& weight) {
  const auto bytes = file.bytes_of(weight);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Result<std::string> requantise(const GgufFile& file, DType type) {
  GgufWriter writer;
  for (const auto& [key, value] : file.metadata()) writer.add(key, value);
  for (const auto& [name, weight] : file.weights().all()) {
    if (!is_changed(weight)) {
      writer.add_weight(name, weight.dtype, weight.shape, stored(file, weight));
      continue;
    }
    const DType to = type_or_stand_in(type, weight.cols());
    if (weight.cols() % dtype_info(to).block_length != 0) {
      return invalid(fmt::format("requantise {}: rows of {} columns cannot be stored as {}", name,
                                 weight.cols(), dtype_info(to).name));
    }
    std::vector<float> values(static_cast<std::size_t>(weight.rows() * weight.cols()));
    dequantise(weight.dtype, file.bytes_of(weight).data(), weight.rows() * weight.cols(),
               values.data());
    writer.add_weight(name, to, weight.shape, quantise(to, values));
  }
  return writer.file();
}

Result<std::string> keep_layers(const GgufFile& file, std::int64_t layers) {
  const std::string count_key = TRY(file.required_string("general.architecture")) + ".block_count";
  const std::int64_t all = TRY(file.required_int(count_key));
  if (layers < 1 || layers > all) {
    return invalid(fmt::format("keep {} of {} layers", layers, all));
  }
  GgufWriter writer;
  for (const auto& [key, value] : file.metadata()) {
    writer.add(key, key == count_key ? GgufValue(layers) : value);
  }
  for (const auto& [name, weight] : file.weights().all()) {
    constexpr std::string_view kLayer = "blk.";
    std::int64_t layer = -1;
    if (name.starts_with(kLayer)) {
      std::from_chars(name.data() + kLayer.size(), name.data() + name.size(), layer);
    }
    if (layer < layers) writer.add_weight(name, weight.dtype, weight.shape, stored(file, weight));
  }
  return writer.file();
}

}  // namespace plimsoll
