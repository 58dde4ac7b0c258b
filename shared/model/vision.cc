#include "shared/model/vision.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr std::int64_t kColours = 3;
constexpr std::int64_t kSideMax = 65'536;  // of an image, in pixels or patches
constexpr std::int64_t kLayersMax = 4096;
constexpr std::int64_t kWidthMax = 65'536;  // of a tower

using Tensors = std::vector<CountedTensor>;
using Shape = std::vector<std::int64_t>;

void add(Tensors& out, std::string name, Shape shape, std::int64_t count = 1) {
  out.push_back({std::move(name), std::move(shape), count});
}

void add_linear(Tensors& out, const std::string& module, Shape shape, std::int64_t count = 1) {
  add(out, module + ".bias", {shape.front()}, count);
  add(out, module + ".weight", std::move(shape), count);
}

void add_layer_norm(Tensors& out, const std::string& module, std::int64_t size,
                    std::int64_t count = 1) {
  add(out, module + ".bias", {size}, count);
  add(out, module + ".weight", {size}, count);
}

Tensors moonvit(const VisionConfig& in) {
  const auto& [kind, layers, hidden, ffn, heads] = in.tower;
  const std::string block = "vision_tower.encoder.blocks.0.";
  Tensors out;
  add(out, "vision_tower.patch_embed.proj.weight", {hidden, kColours, in.patch, in.patch});
  add(out, "vision_tower.patch_embed.proj.bias", {hidden});
  add(out, "vision_tower.patch_embed.pos_emb.weight", {in.positions, hidden});
  add_layer_norm(out, block + "norm0", hidden, layers);
  add_layer_norm(out, block + "norm1", hidden, layers);
  add_linear(out, block + "wqkv", {3 * hidden, hidden}, layers);
  add_linear(out, block + "wo", {hidden, hidden}, layers);
  add_linear(out, block + "mlp.fc0", {ffn, hidden}, layers);
  add_linear(out, block + "mlp.fc1", {hidden, ffn}, layers);
  add_layer_norm(out, "vision_tower.encoder.final_layernorm", hidden);
  const std::int64_t joined = hidden * in.merged;
  add_layer_norm(out, "mm_projector.pre_norm", hidden);
  add_linear(out, "mm_projector.proj.0", {joined, joined});
  add_linear(out, "mm_projector.proj.2", {in.text_hidden, joined});
  return out;
}

Tensors siglip(const VisionConfig& in) {
  const auto& [kind, layers, hidden, ffn, heads] = in.tower;
  const std::string tower = "vision_tower.vision_model.";
  const std::string layer = tower + "encoder.layers.0.";
  Tensors out;
  add(out, tower + "embeddings.patch_embedding.weight", {hidden, kColours, in.patch, in.patch});
  add(out, tower + "embeddings.patch_embedding.bias", {hidden});
  add(out, tower + "embeddings.position_embedding.weight", {in.positions, hidden});
  add_layer_norm(out, layer + "layer_norm1", hidden, layers);
  add_layer_norm(out, layer + "layer_norm2", hidden, layers);
  for (const char* module : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
    add_linear(out, layer + "self_attn." + module, {hidden, hidden}, layers);
  }
  add_linear(out, layer + "mlp.fc1", {ffn, hidden}, layers);
  add_linear(out, layer + "mlp.fc2", {hidden, ffn}, layers);
  add_layer_norm(out, tower + "post_layernorm", hidden);
  add(out, "multi_modal_projector.mm_input_projection_weight", {hidden, in.text_hidden});
  add(out, "multi_modal_projector.mm_soft_emb_norm.weight", {hidden});
  return out;
}

Tensors pixtral(const VisionConfig& in) {
  const auto& [kind, layers, hidden, ffn, heads] = in.tower;
  const std::string layer = "vision_tower.transformer.layers.0.";
  Tensors out;
  add(out, "vision_tower.patch_conv.weight", {hidden, kColours, in.patch, in.patch});
  add(out, "vision_tower.ln_pre.weight", {hidden});
  add(out, layer + "attention_norm.weight", {hidden}, layers);
  add(out, layer + "ffn_norm.weight", {hidden}, layers);
  for (const char* module : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    add(out, layer + "attention." + module + ".weight", {hidden, hidden}, layers);
  }
  add(out, layer + "feed_forward.gate_proj.weight", {ffn, hidden}, layers);
  add(out, layer + "feed_forward.up_proj.weight", {ffn, hidden}, layers);
  add(out, layer + "feed_forward.down_proj.weight", {hidden, ffn}, layers);
  const std::string projector = "multi_modal_projector.";
  add(out, projector + "norm.weight", {hidden});
  add(out, projector + "patch_merger.merging_layer.weight", {hidden, hidden * in.merged});
  add(out, projector + "linear_1.weight", {in.text_hidden, hidden});
  add(out, projector + "linear_2.weight", {in.text_hidden, in.text_hidden});
  return out;
}

// What differs between the towers that we know.
struct Kind {
  std::string_view wrapper;  // config.json's model_type
  std::string_view name;
  std::string_view hidden;  // keys of vision_config
  std::string_view ffn;
  std::string_view heads;
  std::string_view layers;
  Tensors (*tensors)(const VisionConfig&);
};

constexpr std::array kKinds = {
    Kind{"kimi_k25", "moonvit", "vt_hidden_size", "vt_intermediate_size", "vt_num_attention_heads",
         "vt_num_hidden_layers", moonvit},
    Kind{"gemma3", "siglip", "hidden_size", "intermediate_size", "num_attention_heads",
         "num_hidden_layers", siglip},
    Kind{"mistral3", "pixtral", "hidden_size", "intermediate_size", "num_attention_heads",
         "num_hidden_layers", pixtral},
};

Status read_moonvit(const ConfigObject& vision, VisionConfig& out) {
  const std::int64_t height = TRY(vision.size("init_pos_emb_height", kSideMax));
  out.positions = height * TRY(vision.size("init_pos_emb_width", kSideMax));
  const auto merge = TRY(vision.integers("merge_kernel_size"));
  if (merge.size() != 2 || merge[0] < 1 || merge[1] < 1 || merge[0] > 64 || merge[1] > 64) {
    return invalid(
        fmt::format("{}: expected two sizes from 1 to 64", vision.name("merge_kernel_size")));
  }
  out.merged = merge[0] * merge[1];
  return {};
}

Status read_kind(const Kind& kind, const ConfigObject& vision, VisionConfig& out) {
  if (kind.name == "moonvit") return read_moonvit(vision, out);
  if (kind.name == "pixtral") {
    const std::int64_t merge = TRY(vision.size_or("spatial_merge_size", 2, 64));
    out.merged = merge * merge;
    return {};
  }
  const std::int64_t side = TRY(vision.size("image_size", kSideMax)) / out.patch;
  out.positions = side * side;
  return {};
}

std::string_view leaf_module(std::string_view name) {
  const std::size_t last = name.rfind('.');
  if (last == std::string_view::npos) return {};
  const std::string_view module = name.substr(0, last);
  const std::size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? module : module.substr(dot + 1);
}

}  // namespace

Result<std::optional<VisionConfig>> read_vision(std::string_view wrapper,
                                                const ConfigObject& vision,
                                                std::int64_t text_hidden) {
  const auto* kind = std::ranges::find(kKinds, wrapper, &Kind::wrapper);
  if (kind == kKinds.end()) return std::optional<VisionConfig>();
  VisionConfig out;
  out.tower.kind = kind->name;
  out.tower.hidden = TRY(vision.size(kind->hidden, kWidthMax));
  out.tower.ffn = TRY(vision.size(kind->ffn));
  out.tower.heads = TRY(vision.size(kind->heads));
  out.tower.layers = TRY(vision.size(kind->layers, kLayersMax));
  out.patch = TRY(vision.size("patch_size", 1024));
  out.text_hidden = text_hidden;
  if (out.tower.hidden % out.tower.heads != 0) {
    return invalid(fmt::format("{} is {}; expected a multiple of the {} heads",
                               vision.name(kind->hidden), out.tower.hidden, out.tower.heads));
  }
  TRY(read_kind(*kind, vision, out));
  return std::optional(std::move(out));
}

std::vector<CountedTensor> vision_tensors(const VisionConfig& config) {
  for (const Kind& kind : kKinds) {
    if (kind.name == config.tower.kind) return kind.tensors(config);
  }
  return {};
}

Cut vision_cut(const VisionTower& tower, std::string_view name,
               const std::vector<std::int64_t>& shape) {
  const std::string_view leaf = leaf_module(name);
  const std::int64_t head = tower.hidden / tower.heads;
  const bool is_bias = shape.size() == 1 && name.ends_with(".bias");
  if (shape.size() != 2 && !is_bias) return {};
  if (leaf == "wqkv" && shape[0] == 3 * tower.hidden) {
    return {CutBy::vision_heads, false, 3 * head, tower.heads, 1};
  }
  const bool reads_image = leaf == "q_proj" || leaf == "k_proj" || leaf == "v_proj";
  if (reads_image && shape[0] == tower.hidden) {
    return {CutBy::vision_heads, false, head, tower.heads, 1};
  }
  const bool is_output = leaf == "wo" || leaf == "out_proj" || leaf == "o_proj";
  if (is_output && !is_bias && shape[1] == tower.hidden) {
    return {CutBy::vision_heads, true, head, tower.heads, 1};
  }
  const bool is_ffn =
      leaf.starts_with("fc") || leaf == "gate_proj" || leaf == "up_proj" || leaf == "down_proj";
  if (is_ffn && shape[0] == tower.ffn) return {CutBy::vision_ffn, false, 1, tower.ffn, 1};
  if (is_ffn && !is_bias && shape[1] == tower.ffn)
    return {CutBy::vision_ffn, true, 1, tower.ffn, 1};
  return {};
}

}  // namespace plimsoll
