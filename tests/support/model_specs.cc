#include "tests/support/model_specs.h"

#include <utility>
#include <vector>

#include "shared/base/check.h"
#include "shared/model/weight_groups.h"

namespace plimsoll {
namespace {

void add(ModelSpec& spec, std::string name, DType dtype, std::vector<std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  WeightInfo info{.name = std::move(name),
                  .dtype = dtype,
                  .shape = std::move(shape),
                  .offset = 0,
                  .bytes = stored_bytes(dtype, elements)};
  CHECK(spec.weights.add(std::move(info)));
}

}  // namespace

ModelSpec make_llama_spec(const LlamaShape& shape) {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.name = "test";
  spec.layers = shape.layers;
  spec.hidden = shape.hidden;
  spec.ffn = shape.ffn;
  spec.heads = shape.heads;
  spec.kv_heads = shape.kv_heads;
  spec.head_dim = shape.head_dim;
  spec.vocab = shape.vocab;
  spec.context_length = shape.context_length;
  spec.rope_dim = shape.head_dim;
  spec.tied_head = shape.tied_head;
  const std::int64_t q = shape.heads * shape.head_dim;
  const std::int64_t kv = shape.kv_heads * shape.head_dim;
  const DType table = shape.table_dtype.value_or(shape.dtype);
  add(spec, "token_embd.weight", table, {shape.vocab, shape.hidden});
  add(spec, "output_norm.weight", DType::f32, {shape.hidden});
  if (!shape.tied_head) add(spec, "output.weight", table, {shape.vocab, shape.hidden});
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    add(spec, prefix + "attn_norm.weight", DType::f32, {shape.hidden});
    add(spec, prefix + "ffn_norm.weight", DType::f32, {shape.hidden});
    add(spec, prefix + "attn_q.weight", shape.dtype, {q, shape.hidden});
    add(spec, prefix + "attn_k.weight", shape.dtype, {kv, shape.hidden});
    add(spec, prefix + "attn_v.weight", shape.dtype, {kv, shape.hidden});
    add(spec, prefix + "attn_output.weight", shape.dtype, {shape.hidden, q});
    add(spec, prefix + "ffn_gate.weight", shape.dtype, {shape.ffn, shape.hidden});
    add(spec, prefix + "ffn_up.weight", shape.dtype, {shape.ffn, shape.hidden});
    add(spec, prefix + "ffn_down.weight", shape.down_dtype.value_or(shape.dtype),
        {shape.hidden, shape.ffn});
  }
  Result<std::vector<WeightGroup>> groups = gguf_groups(spec);
  CHECK(groups.has_value());
  spec.groups = std::move(*groups);
  return spec;
}

LlamaShape smollm2_shape() {
  return {.layers = 30,
          .hidden = 576,
          .ffn = 1536,
          .heads = 9,
          .kv_heads = 3,
          .head_dim = 64,
          .vocab = 49'152,
          .context_length = 8192,
          .dtype = DType::q4_1,
          .tied_head = true};
}

LlamaShape llama3_8b_shape() {
  return {.layers = 32,
          .hidden = 4096,
          .ffn = 14'336,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .vocab = 128'256,
          .context_length = 131'072,
          .dtype = DType::q8_0,
          .tied_head = false};
}

}  // namespace plimsoll
