// ModelSpecs: model shapes for tests of the plan, made without a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/model/model_spec.h"

namespace plimsoll {

struct LlamaShape {
  std::int64_t layers = 2;
  std::int64_t hidden = 64;
  std::int64_t ffn = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 16;
  std::int64_t vocab = 256;
  std::int64_t context_length = 8192;
  DType dtype = DType::q8_0;
  std::optional<DType> table_dtype = {};  // embedding and head; absent: dtype
  std::optional<DType> down_dtype = {};   // ffn_down; absent: dtype
  bool tied_head = true;
};

ModelSpec make_llama_spec(const LlamaShape& shape);

// SmolLM2-135M-Instruct's, with every matrix as Q4_1.
LlamaShape smollm2_shape();
// Llama-3.1-8B's.
LlamaShape llama3_8b_shape();

}  // namespace plimsoll
