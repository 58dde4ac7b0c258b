#include "shared/model/quantisation.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/base/units.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kWordBits = 32;
constexpr std::size_t kPatternsMax = 20'000;

Error unusable(const ConfigObject& quant, std::string_view key, std::int64_t value,
               std::string_view expected) {
  return invalid(fmt::format("{} is {}; expected {}", quant.name(key), value, expected));
}

Result<std::vector<ModulePattern>> read_patterns(const ConfigObject& quant, std::string_view key,
                                                 PatternSyntax syntax) {
  std::vector<ModulePattern> patterns;
  for (std::string& text : TRY(quant.texts(key))) {
    if (patterns.size() == kPatternsMax) {
      return invalid(fmt::format("{} has more than {} entries", quant.name(key), kPatternsMax));
    }
    patterns.push_back(
        TRY_CONTEXT(quant.name(key) + ": ", ModulePattern::parse(std::move(text), syntax)));
  }
  return patterns;
}

// Whole elements fill a word; GPTQ's of 3 bits run on over three words.
Result<std::int64_t> read_bits(const ConfigObject& object, std::string_view key,
                               bool may_run_on = false) {
  const std::int64_t bits = TRY(object.size(key, kWordBits));
  if (bits == 2 || bits == 4 || bits == 8 || (bits == 3 && may_run_on)) return bits;
  return unusable(object, key, bits, may_run_on ? "2, 3, 4 or 8" : "2, 4 or 8");
}

Status read_block(const ConfigObject& object, std::string_view key, MatrixScheme& scheme) {
  const std::vector<std::int64_t> block = TRY(object.integers(key));
  if (block.empty()) return {};
  if (block.size() != 2 || block[0] < 1 || block[1] < 1) {
    return invalid(
        fmt::format("{} has {} entries; expected two sizes", object.name(key), block.size()));
  }
  scheme.block_rows = block[0];
  scheme.block_cols = block[1];
  return {};
}

MatrixFormat format_of(std::string_view format, std::string_view type, std::int64_t bits) {
  if (format == "pack-quantized") return MatrixFormat::int_packed;
  if (format == "nvfp4-pack-quantized") return MatrixFormat::nvfp4;
  if (type == "float" && bits == 8) return MatrixFormat::fp8;
  if (type == "int" && bits == 8) return MatrixFormat::int8;
  return MatrixFormat::plain;
}

Result<MatrixScheme> read_group(const ConfigObject& group, std::string_view format) {
  MatrixScheme scheme;
  const auto weights = TRY(group.object("weights"));
  if (!weights) return invalid(fmt::format("{} is missing", group.name("weights")));
  scheme.bits = TRY(read_bits(*weights, "num_bits"));
  const std::string type = TRY(weights->text_or("type", "int"));
  scheme.format = format_of(TRY(group.text_or("format", std::string(format))), type, scheme.bits);
  const std::string strategy = TRY(weights->text_or("strategy", "channel"));
  scheme.one_scale = strategy == "tensor";
  if (strategy == "group" || strategy == "tensor_group") {
    scheme.group = TRY(weights->size("group_size"));
  }
  if (strategy == "block") TRY(read_block(*weights, "block_structure", scheme));
  scheme.symmetric = TRY(weights->bool_or("symmetric", true));
  scheme.targets = TRY(read_patterns(group, "targets", PatternSyntax::compressed_tensors));
  scheme.all_linears = std::ranges::any_of(
      scheme.targets, [](const ModulePattern& target) { return target.text() == "Linear"; });
  return scheme;
}

std::string words_of(const MatrixScheme& scheme) {
  const bool floats = scheme.format == MatrixFormat::fp8 || scheme.format == MatrixFormat::nvfp4;
  std::string words = fmt::format("{}{}", floats ? "FP" : "INT", scheme.bits);
  if (scheme.group > 0) words += fmt::format(", groups of {}", scheme.group);
  if (scheme.block_rows > 0) {
    words += fmt::format(", blocks of {}x{}", scheme.block_rows, scheme.block_cols);
  }
  return words;
}

Status read_compressed_tensors(const ConfigObject& quant, Quantisation& out) {
  out.takes_listed = true;
  const std::string format = TRY(quant.text_or("format", ""));
  const auto groups = TRY(quant.object("config_groups"));
  if (!groups) return invalid(fmt::format("{} is missing", quant.name("config_groups")));
  for (const auto& [name, value] : groups->json().as_object()) {
    const auto group = TRY(groups->object(name));
    if (!group) continue;
    out.schemes.push_back(TRY(read_group(*group, format)));
    if (out.schemes.back().format != MatrixFormat::plain) continue;
    out.unknown = fmt::format("{} is \"{}\"", quant.name("format"), to_valid_utf8(format));
  }
  out.exceptions = TRY(read_patterns(quant, "ignore", PatternSyntax::compressed_tensors));
  if (!out.schemes.empty()) {
    out.words = fmt::format("compressed-tensors {}", words_of(out.schemes.front()));
  }
  return {};
}

// FBGEMM's have a scale for each row, others one for a block or for all.
Status read_fp8(const ConfigObject& quant, bool by_rows, Quantisation& out) {
  MatrixScheme scheme{.format = MatrixFormat::fp8, .bits = 8, .all_linears = true, .targets = {}};
  if (!by_rows) TRY(read_block(quant, "weight_block_size", scheme));
  scheme.one_scale = !by_rows && scheme.block_rows == 0;
  out.words = words_of(scheme);
  out.schemes.push_back(std::move(scheme));
  for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
    for (ModulePattern& pattern : TRY(read_patterns(quant, key, PatternSyntax::part_of_name))) {
      out.exceptions.push_back(std::move(pattern));
    }
  }
  return {};
}

Status read_packed(const ConfigObject& quant, MatrixFormat format, Quantisation& out) {
  MatrixScheme scheme{.format = format, .all_linears = true, .targets = {}};
  scheme.bits =
      TRY(read_bits(quant, quant.has("w_bit") ? "w_bit" : "bits", format == MatrixFormat::gptq));
  const char* const key = quant.has("q_group_size") ? "q_group_size" : "group_size";
  const Json* group = quant.find(key);
  const bool is_row = group != nullptr && group->is_integer() && group->as_int() == -1;
  if (!is_row) scheme.group = TRY(quant.size_or(key, 128));
  scheme.symmetric = false;
  out.words = fmt::format("{} {}", format == MatrixFormat::awq ? "AWQ" : "GPTQ", words_of(scheme));
  out.schemes.push_back(std::move(scheme));
  out.exceptions = TRY(read_patterns(quant, "modules_to_not_convert", PatternSyntax::part_of_name));
  return {};
}

Status read_modelopt(const ConfigObject& quant, Quantisation& out) {
  const std::string algorithm = TRY(quant.text_or("quant_algo", ""));
  MatrixScheme scheme{.all_linears = true, .targets = {}};
  if (algorithm == "NVFP4") {
    scheme.format = MatrixFormat::nvfp4;
    scheme.bits = 4;
    scheme.group = TRY(quant.size_or("group_size", 16));
  } else if (algorithm == "FP8") {
    scheme.format = MatrixFormat::fp8;
    scheme.bits = 8;
    scheme.one_scale = true;
  } else {
    out.unknown = fmt::format("{} is \"{}\"", quant.name("quant_algo"), to_valid_utf8(algorithm));
    return {};
  }
  out.words = fmt::format("ModelOpt {}", words_of(scheme));
  out.schemes.push_back(std::move(scheme));
  for (const char* key : {"ignore", "exclude_modules"}) {
    for (ModulePattern& pattern : TRY(read_patterns(quant, key, PatternSyntax::wildcards))) {
      out.exceptions.push_back(std::move(pattern));
    }
  }
  return {};
}

using Shape = std::vector<std::int64_t>;

std::vector<MatrixTensor> int_packed(const MatrixScheme& scheme, std::int64_t rows,
                                     std::int64_t cols, std::string_view plain_type) {
  const std::int64_t groups = scheme.group == 0 ? 1 : ceil_div(cols, scheme.group);
  std::vector<MatrixTensor> tensors = {
      {"weight_packed", "I32", Shape{rows, ceil_div(cols * scheme.bits, kWordBits)}},
      {"weight_scale", plain_type, Shape{rows, groups}}};
  if (!scheme.symmetric) {
    tensors.push_back(
        {"weight_zero_point", "I32", Shape{ceil_div(rows * scheme.bits, kWordBits), groups}});
  }
  return tensors;
}

std::vector<MatrixTensor> fp8(const MatrixScheme& scheme, std::int64_t rows, std::int64_t cols) {
  MatrixTensor values{"weight", "F8_E4M3", Shape{rows, cols}};
  if (scheme.block_rows > 0) {
    return {std::move(values),
            {"weight_scale_inv", "F32",
             Shape{ceil_div(rows, scheme.block_rows), ceil_div(cols, scheme.block_cols)}}};
  }
  return {std::move(values), {"weight_scale", "F32", scheme.one_scale ? Shape{1} : Shape{rows, 1}}};
}

std::vector<MatrixTensor> nvfp4(const MatrixScheme& scheme, std::int64_t rows, std::int64_t cols) {
  return {{"weight", "U8", Shape{rows, ceil_div(cols, 2)}},
          {"weight_scale", "F8_E4M3",
           Shape{rows, ceil_div(cols, std::max<std::int64_t>(1, scheme.group))}},
          {"weight_scale_2", "F32", Shape{1}},
          {"input_scale", "F32", Shape{1}}};
}

std::vector<MatrixTensor> awq_or_gptq(const MatrixScheme& scheme, std::int64_t rows,
                                      std::int64_t cols) {
  const std::int64_t groups = scheme.group == 0 ? 1 : ceil_div(cols, scheme.group);
  const std::int64_t packed_rows = ceil_div(rows * scheme.bits, kWordBits);
  const bool by_rows = scheme.format == MatrixFormat::awq;
  std::vector<MatrixTensor> tensors = {
      {"qweight", "I32",
       by_rows ? Shape{cols, packed_rows} : Shape{ceil_div(cols * scheme.bits, kWordBits), rows}},
      {"qzeros", "I32", Shape{groups, packed_rows}},
      {"scales", "F16", Shape{groups, rows}}};
  if (!by_rows) tensors.push_back({"g_idx", "I32", Shape{cols}});
  return tensors;
}

}  // namespace

Result<Quantisation> read_quantisation(const ConfigObject& config) {
  Quantisation out;
  auto quant = TRY(config.object("quantization_config"));
  if (!quant) quant = TRY(config.object("compression_config"));
  if (!quant) return out;
  const std::string method = TRY(quant->text_or("quant_method", ""));
  out.words = to_valid_utf8(method.substr(0, 40));
  if (method == "compressed-tensors") {
    TRY(read_compressed_tensors(*quant, out));
  } else if (method == "fp8") {
    TRY(read_fp8(*quant, false, out));
  } else if (method == "fbgemm_fp8") {
    TRY(read_fp8(*quant, true, out));
  } else if (method == "awq") {
    TRY(read_packed(*quant, MatrixFormat::awq, out));
  } else if (method == "gptq") {
    TRY(read_packed(*quant, MatrixFormat::gptq, out));
  } else if (method == "modelopt" || method == "modelopt_fp4") {
    TRY(read_modelopt(*quant, out));
  } else {
    out.unknown = fmt::format("{} is \"{}\"", quant->name("quant_method"), out.words);
  }
  return out;
}

Result<const MatrixScheme*> scheme_of(const Quantisation& quantisation, Stored stored,
                                      std::string_view module) {
  const MatrixScheme* none = nullptr;
  const bool may =
      stored == Stored::linear || (stored == Stored::listed && quantisation.takes_listed);
  if (!may) return none;
  for (const ModulePattern& exception : quantisation.exceptions) {
    if (TRY(exception.matches(module))) return none;
  }
  for (const MatrixScheme& scheme : quantisation.schemes) {
    if (scheme.all_linears) return &scheme;
    for (const ModulePattern& target : scheme.targets) {
      if (TRY(target.matches(module))) return &scheme;
    }
  }
  return none;
}

std::vector<MatrixTensor> matrix_tensors(const MatrixScheme& scheme, std::int64_t rows,
                                         std::int64_t cols, std::string_view plain_type) {
  switch (scheme.format) {
    case MatrixFormat::plain:
      break;
    case MatrixFormat::int_packed:
      return int_packed(scheme, rows, cols, plain_type);
    case MatrixFormat::int8:
      return {{"weight", "I8", Shape{rows, cols}},
              {"weight_scale", plain_type, scheme.one_scale ? Shape{1} : Shape{rows, 1}}};
    case MatrixFormat::fp8:
      return fp8(scheme, rows, cols);
    case MatrixFormat::nvfp4:
      return nvfp4(scheme, rows, cols);
    case MatrixFormat::awq:
    case MatrixFormat::gptq:
      return awq_or_gptq(scheme, rows, cols);
  }
  return {{"weight", plain_type, Shape{rows, cols}}};
}

}  // namespace plimsoll
