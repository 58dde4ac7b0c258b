#include "shared/model/model_spec.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/model/head_limits.h"
#include "shared/model/weight_groups.h"

namespace plimsoll {
namespace {

// Sizes above these are damage, not models; they also keep every product below inside 63 bits.
constexpr std::int64_t kSizeMax = 1 << 20;
constexpr std::int64_t kLengthMax = (std::int64_t{1} << 31) - 1;

constexpr std::int64_t kWeightsPerLayer = 9;

constexpr std::array<std::string_view, 1> kArchitectures = {"llama"};

// Reads the keys of one architecture: "llama." + key.
class Metadata {
 public:
  Metadata(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return file_.find(key(name)) != nullptr; }

  // A size of the model; an array with an entry a layer where all entries are equal.
  Result<std::int64_t> size(std::string_view name, std::int64_t size_max) const {
    const std::string full = key(name);
    const GgufValue* value = file_.find(full);
    const auto* array = value == nullptr ? nullptr : std::get_if<std::vector<std::int64_t>>(value);
    if (array == nullptr) return checked(full, TRY(file_.required_int(full)), size_max);
    if (array->empty()) return invalid(fmt::format("GGUF metadata {} is an empty array", full));
    const auto other =
        std::ranges::find_if(*array, [&](std::int64_t entry) { return entry != array->front(); });
    if (other != array->end()) {
      return invalid(fmt::format(
          "GGUF metadata {} differs between layers ({} in layer 0, {} in layer {}); only models "
          "whose layers are all alike can be run",
          full, array->front(), *other, other - array->begin()));
    }
    return checked(full, array->front(), size_max);
  }

  Result<std::int64_t> size_or(std::string_view name, std::int64_t fallback,
                               std::int64_t size_max) const {
    return has(name) ? size(name, size_max) : Result<std::int64_t>(fallback);
  }

  Result<double> positive_or(std::string_view name, double fallback) const {
    const double value = TRY(file_.float_or(key(name), fallback));
    if (value > 0 && value < 1e12) return value;
    return invalid(
        fmt::format("GGUF metadata {} is {}; expected a positive number", key(name), value));
  }

 private:
  static Result<std::int64_t> checked(const std::string& full, std::int64_t value,
                                      std::int64_t size_max) {
    if (value >= 1 && value <= size_max) return value;
    return invalid(fmt::format("GGUF metadata {} is {}; expected 1 to {}", full, value, size_max));
  }

  const GgufFile& file_;
  std::string prefix_;
};

Result<std::string> read_architecture(const GgufFile& file) {
  const std::string name = TRY_CONTEXT("this file does not say what kind of model it is: ",
                                       file.required_string("general.architecture"));
  if (std::ranges::find(kArchitectures, name) != kArchitectures.end()) return name;
  const std::vector<std::string> known(kArchitectures.begin(), kArchitectures.end());
  return invalid(fmt::format(
      "the model's architecture is \"{}\" (GGUF metadata general.architecture), which cannot be "
      "run; supported: {} (SmolLM2, Llama 3 and others with a byte-level BPE vocabulary)",
      to_valid_utf8(name), join(known, ", ")));
}

Status read_rope(const GgufFile& file, const Metadata& metadata, ModelSpec& spec) {
  spec.rope_base = TRY(metadata.positive_or("rope.freq_base", 10000));
  spec.rope_dim = TRY(metadata.size_or("rope.dimension_count", spec.head_dim, kSizeMax));
  if (spec.rope_dim % 2 != 0 || spec.rope_dim > spec.head_dim) {
    return invalid(
        fmt::format("GGUF metadata {} is {}; expected an even number up to the head "
                    "dimension, {}",
                    metadata.key("rope.dimension_count"), spec.rope_dim, spec.head_dim));
  }
  const std::string type =
      TRY(file.string_or(metadata.key("rope.scaling.type"), std::string("linear")));
  if (type == "linear") {
    const double old_factor = TRY(metadata.positive_or("rope.scale_linear", 1));
    spec.rope_scale = TRY(metadata.positive_or("rope.scaling.factor", old_factor));
  } else if (type != "none") {
    return invalid(
        fmt::format("GGUF metadata {} is \"{}\", which cannot be run; supported: none, "
                    "linear, and Llama 3's rope_freqs.weight",
                    metadata.key("rope.scaling.type"), to_valid_utf8(type)));
  }
  spec.rope_pairing = RopePairing::interleaved;
  spec.has_rope_freqs = spec.weights.find("rope_freqs.weight") != nullptr;
  return {};
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

Status read_heads(const Metadata& metadata, ModelSpec& spec) {
  spec.heads = TRY(metadata.size("attention.head_count", kSizeMax));
  spec.kv_heads = TRY(metadata.size_or("attention.head_count_kv", spec.heads, kSizeMax));
  if (spec.heads % spec.kv_heads != 0) {
    return invalid(fmt::format("GGUF metadata {} is {}; expected a divisor of the {} heads",
                               metadata.key("attention.head_count_kv"), spec.kv_heads, spec.heads));
  }
  if (!metadata.has("attention.key_length") && spec.hidden % spec.heads != 0) {
    return invalid(
        fmt::format("GGUF metadata {} is missing, and {} columns do not divide over {} "
                    "heads",
                    metadata.key("attention.key_length"), spec.hidden, spec.heads));
  }
  spec.head_dim = TRY(metadata.size_or("attention.key_length", spec.hidden / spec.heads, kSizeMax));
  const auto value_dim = TRY(metadata.size_or("attention.value_length", spec.head_dim, kSizeMax));
  if (value_dim != spec.head_dim) {
    return invalid(
        fmt::format("GGUF metadata {} is {}; only models whose value heads are as wide "
                    "as their key heads ({}) can be run",
                    metadata.key("attention.value_length"), value_dim, spec.head_dim));
  }
  return check_head_shape(spec);
}

Result<std::int64_t> read_vocab(const GgufFile& file, const Metadata& metadata) {
  const auto* tokens = TRY(file.strings("tokenizer.ggml.tokens"));
  const std::int64_t count = tokens == nullptr ? 0 : std::ssize(*tokens);
  if (metadata.has("vocab_size")) {
    const std::int64_t rows = TRY(metadata.size("vocab_size", kLengthMax));
    if (count <= rows) return rows;
    return invalid(
        fmt::format("the tokenizer has {} tokens (tokenizer.ggml.tokens), but {} says {}; expected "
                    "a row of the vocabulary for every token",
                    count, metadata.key("vocab_size"), rows));
  }
  if (count > 0) return count;
  const WeightInfo* embedding = file.weights().find("token_embd.weight");
  if (embedding != nullptr) return embedding->rows();
  return not_found(
      fmt::format("the size of the vocabulary is unknown: the file has neither {} nor "
                  "tokenizer.ggml.tokens nor token_embd.weight",
                  metadata.key("vocab_size")));
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

// The type that most weight bytes have.
std::string main_type(const WeightIndex& weights) {
  std::map<DType, Bytes> bytes;
  for (const auto& [name, weight] : weights.all()) bytes[weight.dtype] += weight.bytes;
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most == bytes.end() ? std::string() : std::string(dtype_info(most->first).name);
}

Status refuse_experts(const Metadata& metadata, const GgufFile& file) {
  const std::string key = metadata.key("expert_count");
  const auto experts = TRY(file.int_or(key, 0));
  if (experts == 0) return {};
  return invalid(
      fmt::format("the model is a mixture of {} experts ({}), which cannot be run; only "
                  "dense models can",
                  experts, key));
}

}  // namespace

Result<ModelSpec> read_model_spec(const GgufFile& file) {
  ModelSpec spec;
  spec.architecture = TRY(read_architecture(file));
  spec.name = to_valid_utf8(TRY(file.string_or("general.name", spec.architecture)));
  spec.weights = file.weights();
  spec.file_type = main_type(spec.weights);
  const Metadata metadata(file, spec.architecture);
  TRY(refuse_experts(metadata, file));
  spec.layers = TRY(metadata.size("block_count", kSizeMax));
  spec.hidden = TRY(metadata.size("embedding_length", kSizeMax));
  spec.ffn = TRY(metadata.size("feed_forward_length", kSizeMax));
  TRY(read_heads(metadata, spec));
  const auto context = TRY(metadata.size("context_length", kLengthMax));
  // Attention is always over the whole context; within its window such a model is computed exactly.
  const auto window = TRY(file.int_or(metadata.key("attention.sliding_window"), 0));
  spec.context_length = window > 0 ? std::min(context, window) : context;
  spec.vocab = TRY(read_vocab(file, metadata));
  TRY(file.required_float(metadata.key("attention.layer_norm_rms_epsilon")));
  spec.norm_eps = TRY(metadata.positive_or("attention.layer_norm_rms_epsilon", 0));
  TRY(read_rope(file, metadata, spec));
  spec.tied_head = spec.weights.find("output.weight") == nullptr;
  TRY(check_weights(spec));
  spec.groups = TRY(gguf_groups(spec));
  return spec;
}

Bytes ModelSpec::weight_bytes() const {
  Bytes sum = 0;
  for (const WeightGroup& group : groups) sum += group.bytes_of_all();
  return sum;
}

}  // namespace plimsoll
