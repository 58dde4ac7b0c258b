#include "shared/model/model_spec.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/model/gguf_spec.h"
#include "shared/model/gguf_split.h"
#include "shared/model/head_limits.h"
#include "shared/model/weight_groups.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kWeightsPerLayer = 9;

// What the worker's graph can run, of the families that can be described.
struct Runnable {
  std::string_view architecture;
  std::string_view models;
};
constexpr std::array kRunnable = {Runnable{"llama", "SmolLM2, Llama 2 and 3, Mistral"},
                                  Runnable{"qwen2", "Qwen 2 and 2.5"}, Runnable{"qwen3", "Qwen 3"},
                                  Runnable{"gemma3", "Gemma 3"}};

Status check_architecture(const GgufFile& file) {
  const std::string name = TRY_CONTEXT("this file does not say what kind of model it is: ",
                                       file.required_string("general.architecture"));
  if (std::ranges::find(kRunnable, name, &Runnable::architecture) != kRunnable.end()) return {};
  std::vector<std::string> known;
  for (const Runnable& row : kRunnable) {
    known.push_back(fmt::format("{} ({})", row.architecture, row.models));
  }
  return invalid(fmt::format(
      "the model's architecture is \"{}\" (GGUF metadata general.architecture), which cannot be "
      "run; supported: {}",
      to_valid_utf8(name), join(known, ", ")));
}

Status refuse_part(const GgufFile& file) {
  const std::optional<GgufPart> part = TRY(gguf_part(file));
  if (!part) return {};
  return invalid(fmt::format(
      "the model is split, and this file is part {} of {}: workers load one file, so "
      "merge the parts first (llama-gguf-split --merge FIRST-PART OUT.gguf); a plan for "
      "GPUs reads them as they are",
      part->number, part->count));
}

Status check_types(const GgufFile& file) {
  for (const auto& [name, weight] : file.weights().all()) {
    const auto id = static_cast<std::uint32_t>(weight.dtype);
    if (dtype_from_gguf(id)) continue;
    std::vector<std::string> names;
    for (const DTypeInfo& known : all_dtypes()) names.emplace_back(known.name);
    return invalid(
        fmt::format("the weight {} has the type {}, which cannot be run; what can be is {}",
                    to_valid_utf8(name), gguf_type_name(id), join(names, ", ")));
  }
  return {};
}

Status refuse_experts(const GgufFile& file) {
  const std::string key = TRY(file.required_string("general.architecture")) + ".expert_count";
  const auto experts = TRY(file.int_or(key, 0));
  if (experts == 0) return {};
  return invalid(
      fmt::format("the model is a mixture of {} experts ({}), which cannot be run; only "
                  "dense models can",
                  experts, key));
}

Status check_rope(const GgufFile& file, const ModelSpec& spec) {
  const std::string key = spec.architecture + ".rope.scaling.type";
  const std::string type = TRY(file.string_or(key, std::string("linear")));
  if (type == "linear" || type == "none") return {};
  return invalid(
      fmt::format("GGUF metadata {} is \"{}\", which cannot be run; supported: none, "
                  "linear, and Llama 3's rope_freqs.weight",
                  key, to_valid_utf8(type)));
}

Status refuse_softcap(const GgufFile& file, const ModelSpec& spec) {
  const std::string key = spec.architecture + ".final_logit_softcapping";
  const double cap = TRY(file.float_or(key, 0));
  if (cap == 0) return {};
  return invalid(
      fmt::format("GGUF metadata {} is {}; models that cap their logits cannot be run", key, cap));
}

// What the attention kernels can run.
Status check_head_shape(const ModelSpec& spec) {
  if (spec.head_dim % kHeadDimMultiple != 0 || spec.head_dim > kHeadDimMax) {
    return invalid(
        fmt::format("the model's heads are {} wide, which cannot be run; what works is a multiple "
                    "of {} up to {}",
                    spec.head_dim, kHeadDimMultiple, kHeadDimMax));
  }
  const std::int64_t sharing = spec.heads / spec.kv_heads;
  if (sharing <= kHeadsPerKvHeadMax) return {};
  return invalid(
      fmt::format("the model's {} heads share {} KV heads, {} each, which cannot be run; what "
                  "works is up to {} heads to a KV head",
                  spec.heads, spec.kv_heads, sharing, kHeadsPerKvHeadMax));
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

using Shapes = std::map<std::string, std::vector<std::int64_t>, std::less<>>;

// Every weight of the graph, with the shape that the metadata say.
Shapes needed_weights(const ModelSpec& spec) {
  const std::int64_t q_width = spec.heads * spec.head_dim;
  const std::int64_t kv_width = spec.kv_heads * spec.head_dim;
  Shapes shapes;
  shapes["token_embd.weight"] = {spec.vocab, spec.hidden};
  shapes["output_norm.weight"] = {spec.hidden};
  if (!spec.tied_head) shapes["output.weight"] = {spec.vocab, spec.hidden};
  if (spec.has_rope_freqs) shapes["rope_freqs.weight"] = {spec.rope_dim / 2};
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    const auto add = [&](std::string_view name, std::vector<std::int64_t> shape) {
      shapes[fmt::format("blk.{}.{}.weight", layer, name)] = std::move(shape);
    };
    const auto add_bias = [&](std::string_view name, std::int64_t size) {
      shapes[fmt::format("blk.{}.{}.bias", layer, name)] = {size};
    };
    if (spec.has_qkv_bias) {
      add_bias("attn_q", q_width);
      add_bias("attn_k", kv_width);
      add_bias("attn_v", kv_width);
    }
    if (spec.has_qk_norms) {
      add("attn_q_norm", {spec.head_dim});
      add("attn_k_norm", {spec.head_dim});
    }
    if (spec.has_post_norms) {
      add("post_attention_norm", {spec.hidden});
      add("post_ffw_norm", {spec.hidden});
    }
    add("attn_norm", {spec.hidden});
    add("attn_q", {q_width, spec.hidden});
    add("attn_k", {kv_width, spec.hidden});
    add("attn_v", {kv_width, spec.hidden});
    add("attn_output", {spec.hidden, q_width});
    add("ffn_norm", {spec.hidden});
    add("ffn_gate", {spec.ffn, spec.hidden});
    add("ffn_up", {spec.ffn, spec.hidden});
    add("ffn_down", {spec.hidden, spec.ffn});
  }
  return shapes;
}

// A weight that the graph would leave out changes the model's answers, so it is refused.
std::string why_refused(std::string_view name) {
  if (name.ends_with(".bias")) return "biases";
  if (name.find(".attn_qkv.") != std::string_view::npos) return "a fused attn_qkv";
  if (name.find("_norm.") != std::string_view::npos) return "further norms";
  if (name.find("_exps.") != std::string_view::npos) return "experts";
  return "further weights";
}

Status check_weights(const ModelSpec& spec) {
  // Before a list of what is needed is made: its length must follow from the file's.
  const std::int64_t held = std::ssize(spec.weights.all());
  if (spec.layers > held / kWeightsPerLayer) {
    return invalid(
        fmt::format("the file holds {} weights; a model of {} layers (block_count) needs "
                    "{} for each",
                    held, spec.layers, kWeightsPerLayer));
  }
  const Shapes needed = needed_weights(spec);
  for (const auto& [name, weight] : spec.weights.all()) {
    // Old converters stored the plain rope frequencies, which follow from the metadata.
    if (needed.contains(name) || name.ends_with(".attn_rot_embd.weight")) continue;
    return invalid(
        fmt::format("the file holds the weight {}; models of architecture {} with {} "
                    "cannot be run (of {} layers)",
                    to_valid_utf8(name), spec.architecture, why_refused(name), spec.layers));
  }
  for (const auto& [name, shape] : needed) {
    const WeightInfo* weight = spec.weights.find(name);
    if (weight == nullptr) {
      return not_found(
          fmt::format("the file has no weight {}; expected one of shape {} in a model "
                      "of {} layers",
                      name, shape_text(shape), spec.layers));
    }
    if (weight->shape != shape) {
      return invalid(fmt::format("the weight {} has the shape {}; the metadata say {}", name,
                                 shape_text(weight->shape), shape_text(shape)));
    }
  }
  return {};
}

}  // namespace

Result<ModelSpec> read_model_spec(const GgufFile& file) {
  TRY(refuse_part(file));
  TRY(check_architecture(file));
  TRY(check_types(file));
  TRY(refuse_experts(file));
  ModelSpec spec = TRY(describe_gguf_sizes(file, file.weights()));
  TRY(check_head_shape(spec));
  TRY(check_rope(file, spec));
  TRY(refuse_softcap(file, spec));
  TRY(check_weights(spec));
  spec.groups = TRY(gguf_groups(spec));
  return spec;
}

bool ModelSpec::has_window(std::int64_t layer) const {
  return window > 0 && std::ranges::find(full_layers, layer) == full_layers.end();
}

Bytes ModelSpec::weight_bytes() const {
  Bytes sum = 0;
  for (const WeightGroup& group : groups) sum += group.bytes_of_all();
  return sum;
}

}  // namespace plimsoll
