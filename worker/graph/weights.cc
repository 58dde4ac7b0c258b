#include "worker/graph/weights.h"

#include <charconv>
#include <optional>
#include <system_error>

namespace plimsoll {
namespace {

struct LayerName {
  std::size_t layer = 0;
  std::string_view rest;
};

// "blk.12.qkv": 12 and "qkv".
std::optional<LayerName> layer_name(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  LayerName result;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), result.layer);
  const auto digits = static_cast<std::size_t>(end - name.data());
  if (error != std::errc{} || digits == name.size() || *end != '.') return std::nullopt;
  result.rest = name.substr(digits + 1);
  return result;
}

}  // namespace

ModelWeights::ModelWeights(const ModelSpec& spec)
    : tied_head(spec.tied_head), layers(static_cast<std::size_t>(spec.layers)) {}

PackedMatrix* ModelWeights::matrix(std::string_view name) {
  if (name == "embedding") return &embedding;
  if (name == "head") return &head;
  const auto in_layer = layer_name(name);
  if (!in_layer || in_layer->layer >= layers.size()) return nullptr;
  LayerWeights& layer = layers[in_layer->layer];
  if (in_layer->rest == "qkv") return &layer.qkv;
  if (in_layer->rest == "attn_output") return &layer.attn_output;
  if (in_layer->rest == "gate_up") return &layer.gate_up;
  if (in_layer->rest == "ffn_down") return &layer.ffn_down;
  return nullptr;
}

const float** ModelWeights::vector(std::string_view name) {
  if (name == "output_norm.weight") return &output_norm;
  if (name == "rope_freqs.weight") return &rope_freqs;
  const auto in_layer = layer_name(name);
  if (!in_layer || in_layer->layer >= layers.size()) return nullptr;
  LayerWeights& layer = layers[in_layer->layer];
  if (in_layer->rest == "attn_norm.weight") return &layer.attn_norm;
  if (in_layer->rest == "ffn_norm.weight") return &layer.ffn_norm;
  if (in_layer->rest == "qkv.bias") return &layer.qkv_bias;
  if (in_layer->rest == "attn_q_norm.weight") return &layer.q_norm;
  if (in_layer->rest == "attn_k_norm.weight") return &layer.k_norm;
  if (in_layer->rest == "post_attention_norm.weight") return &layer.post_attention_norm;
  if (in_layer->rest == "post_ffw_norm.weight") return &layer.post_ffn_norm;
  return nullptr;
}

}  // namespace plimsoll
