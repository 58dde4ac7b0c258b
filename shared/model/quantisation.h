// Quantisation: how a checkpoint stores its matrices, from config.json's quantization_config.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/model/config_object.h"
#include "shared/model/module_pattern.h"
#include "shared/model/weight_table.h"

namespace plimsoll {

enum class MatrixFormat : std::uint8_t {
  plain,       // `weight`, of the model's type
  int_packed,  // compressed-tensors pack-quantized: weight_packed, weight_scale
  int8,        // compressed-tensors int-quantized: weight, weight_scale
  fp8,         // weight, and weight_scale or weight_scale_inv
  nvfp4,       // two to a byte, a scale for 16, a scale for all
  awq,         // qweight [K, N/8], qzeros, scales
  gptq,        // qweight [K/8, N], qzeros, scales, g_idx
};

// Of some modules of a checkpoint.
struct MatrixScheme {
  MatrixFormat format = MatrixFormat::plain;
  std::int64_t bits = 0;
  std::int64_t group = 0;       // columns of one scale; 0: a whole row
  std::int64_t block_rows = 0;  // of FP8's block scales; 0: none
  std::int64_t block_cols = 0;
  bool one_scale = false;  // for the whole matrix
  bool symmetric = true;
  bool all_linears = false;  // else what `targets` matches
  std::vector<ModulePattern> targets;
};

// One tensor of a stored matrix.
struct MatrixTensor {
  std::string_view suffix;  // "weight_packed"
  std::string_view type;
  std::vector<std::int64_t> shape;
};

struct Quantisation {
  std::string words;                  // "compressed-tensors INT4, groups of 32"; "" is none
  std::vector<MatrixScheme> schemes;  // the first that takes a module counts
  std::vector<ModulePattern> exceptions;
  bool takes_listed = false;  // Linears like the head are quantised unless they are exceptions
  // Where not empty the weights cannot be derived from config.json: why, and what works.
  std::string unknown;
};

// Of the object that has a quantization_config, or none. Errors: members of a wrong type.
Result<Quantisation> read_quantisation(const ConfigObject& config);

// nullptr: the module is stored plainly. Errors: as ModulePattern::matches.
Result<const MatrixScheme*> scheme_of(const Quantisation& quantisation, Stored stored,
                                      std::string_view module);

// `plain_type` is the model's own: "BF16".
std::vector<MatrixTensor> matrix_tensors(const MatrixScheme& scheme, std::int64_t rows,
                                         std::int64_t cols, std::string_view plain_type);

}  // namespace plimsoll
