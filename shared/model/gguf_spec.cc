#include "shared/model/gguf_spec.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/base/shown_text.h"
#include "shared/base/text.h"
#include "shared/model/family.h"
#include "shared/model/weight_groups.h"
#include "shared/model/weight_table.h"

namespace plimsoll {
namespace {

// Sizes above these are damage, not models; they also keep every product below inside 63 bits.
constexpr std::int64_t kSizeMax = 1 << 20;
constexpr std::int64_t kLengthMax = (std::int64_t{1} << 31) - 1;
// Of Gemma 3, where the file does not say.
constexpr std::int64_t kDefaultWindowPeriod = 6;
constexpr double kDefaultWindowRopeBase = 10'000;

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

  // 0 where absent; 0 is a value too.
  Result<std::int64_t> count(std::string_view name, std::int64_t count_max) const {
    const std::int64_t value = TRY(file_.int_or(key(name), 0));
    if (value >= 0 && value <= count_max) return value;
    return invalid(
        fmt::format("GGUF metadata {} is {}; expected 0 to {}", key(name), value, count_max));
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
  if (find_gguf_family(name) != nullptr) return name;
  std::set<std::string> known;
  for (const Family& family : families()) known.emplace(family.architecture);
  const std::vector<std::string> names(known.begin(), known.end());
  return invalid(
      fmt::format("the model's architecture is \"{}\" (GGUF metadata general.architecture), which "
                  "is not known to us; known: {}",
                  to_valid_utf8(name), join(names, ", ")));
}

Status read_rope(const GgufFile& file, const Metadata& metadata, ModelSpec& spec) {
  spec.rope_base = TRY(metadata.positive_or("rope.freq_base", 10000));
  const std::int64_t rotated = spec.latent ? spec.latent->rope_dim : spec.head_dim;
  spec.rope_dim = TRY(metadata.size_or("rope.dimension_count", rotated, kSizeMax));
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
  }
  if (spec.window > 0 && find_gguf_family(spec.architecture)->window == WindowRule::pattern) {
    spec.window_rope_base = TRY(metadata.positive_or("rope.freq_base_swa", kDefaultWindowRopeBase));
  }
  const bool is_interleaved = spec.architecture == "llama" || spec.latent;
  spec.rope_pairing = is_interleaved ? RopePairing::interleaved : RopePairing::half_split;
  spec.has_rope_freqs = spec.weights.find("rope_freqs.weight") != nullptr;
  return {};
}

// DeepSeek's: the lengths of keys and values are those of the latent; "_mla" those of a head.
Status read_latent(const Metadata& metadata, ModelSpec& spec) {
  LatentAttention latent;
  latent.q_rank = TRY(metadata.count("attention.q_lora_rank", kSizeMax));
  latent.kv_rank = TRY(metadata.size("attention.kv_lora_rank", kSizeMax));
  latent.rope_dim = TRY(metadata.size("rope.dimension_count", kSizeMax));
  const bool has_mla = metadata.has("attention.key_length_mla");
  spec.head_dim =
      TRY(metadata.size(has_mla ? "attention.key_length_mla" : "attention.key_length", kSizeMax));
  latent.value_dim = TRY(
      metadata.size(has_mla ? "attention.value_length_mla" : "attention.value_length", kSizeMax));
  latent.nope_dim = spec.head_dim - latent.rope_dim;
  if (latent.nope_dim < 1) {
    return invalid(fmt::format("GGUF metadata {} is {}; expected less than the keys' {}",
                               metadata.key("rope.dimension_count"), latent.rope_dim,
                               spec.head_dim));
  }
  latent.has_kv_b = spec.weights.find("blk.0.attn_kv_b.weight") != nullptr;
  spec.kv_heads = 1;
  spec.latent = latent;
  return {};
}

Status read_heads(const Metadata& metadata, ModelSpec& spec) {
  spec.heads = TRY(metadata.size("attention.head_count", kSizeMax));
  if (metadata.has("attention.kv_lora_rank")) return read_latent(metadata, spec);
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
  if (value_dim == spec.head_dim) return {};
  return invalid(
      fmt::format("GGUF metadata {} is {}; only models whose value heads are as wide "
                  "as their key heads ({}) can be run",
                  metadata.key("attention.value_length"), value_dim, spec.head_dim));
}

Status read_experts(const Metadata& metadata, ModelSpec& spec) {
  ExpertShape& experts = spec.experts;
  experts.count = TRY(metadata.count("expert_count", kSizeMax));
  const bool has_ffn = experts.count == 0 || metadata.has("feed_forward_length");
  if (has_ffn) spec.ffn = TRY(metadata.size("feed_forward_length", kSizeMax));
  if (experts.count == 0) return {};
  experts.used = TRY(metadata.size("expert_used_count", kSizeMax));
  experts.ffn = has_ffn ? TRY(metadata.size_or("expert_feed_forward_length", spec.ffn, kSizeMax))
                        : TRY(metadata.size("expert_feed_forward_length", kSizeMax));
  if (!has_ffn) spec.ffn = experts.ffn;
  const std::int64_t shared = TRY(metadata.count("expert_shared_count", 64));
  const std::int64_t shared_ffn =
      TRY(metadata.count("expert_shared_feed_forward_length", kSizeMax));
  experts.shared_ffn = shared_ffn > 0 ? shared_ffn : shared * experts.ffn;
  const std::int64_t dense = TRY(metadata.count("leading_dense_block_count", kSizeMax));
  experts.layers = std::max<std::int64_t>(0, spec.layers - dense);
  return {};
}

// Which layers attend to everything: every n-th, or those that an array does not mark.
Status read_window(const GgufFile& file, const Metadata& metadata, ModelSpec& spec) {
  spec.window = TRY(metadata.count("attention.sliding_window", kLengthMax));
  const Family& family = *find_gguf_family(spec.architecture);
  if (spec.window == 0 || family.window != WindowRule::pattern) return {};
  const std::string key = metadata.key("attention.sliding_window_pattern");
  const GgufValue* pattern = file.find(key);
  const auto* marks = pattern == nullptr ? nullptr : std::get_if<std::vector<bool>>(pattern);
  if (marks != nullptr && std::ssize(*marks) != spec.layers) {
    return invalid(
        fmt::format("GGUF metadata {} has {} entries; expected one for each of the {} "
                    "layers",
                    key, marks->size(), spec.layers));
  }
  const std::int64_t period = marks != nullptr
                                  ? 1
                                  : TRY(metadata.size_or("attention.sliding_window_pattern",
                                                         kDefaultWindowPeriod, kSizeMax));
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    const bool is_full =
        marks != nullptr ? !(*marks)[static_cast<std::size_t>(layer)] : (layer + 1) % period == 0;
    if (is_full) spec.full_layers.push_back(layer);
  }
  return {};
}

Result<std::int64_t> read_vocab(const GgufFile& file, const WeightIndex& weights,
                                const Metadata& metadata) {
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
  const WeightInfo* embedding = weights.find("token_embd.weight");
  if (embedding != nullptr) return embedding->rows();
  return not_found(
      fmt::format("the size of the vocabulary is unknown: the file has neither {} nor "
                  "tokenizer.ggml.tokens nor token_embd.weight",
                  metadata.key("vocab_size")));
}

// The type that most weight bytes have.
std::string main_type(const WeightIndex& weights) {
  std::map<DType, Bytes> bytes;
  for (const auto& [name, weight] : weights.all()) bytes[weight.dtype] += weight.bytes;
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most == bytes.end() ? std::string() : std::string(dtype_info(most->first).name);
}

}  // namespace

Result<ModelSpec> describe_gguf_sizes(const GgufFile& file, const WeightIndex& weights) {
  ModelSpec spec;
  spec.architecture = TRY(read_architecture(file));
  spec.name = shown_line(TRY(file.string_or("general.name", spec.architecture)));
  spec.weights = weights;
  spec.file_type = main_type(spec.weights);
  const Metadata metadata(file, spec.architecture);
  spec.layers = TRY(metadata.size("block_count", kSizeMax));
  spec.mtp_layers = TRY(metadata.count("nextn_predict_layers", spec.layers - 1));
  spec.layers -= spec.mtp_layers;
  spec.hidden = TRY(metadata.size("embedding_length", kSizeMax));
  TRY(read_experts(metadata, spec));
  TRY(read_heads(metadata, spec));
  spec.context_length = TRY(metadata.size("context_length", kLengthMax));
  TRY(read_window(file, metadata, spec));
  tell_features(find_gguf_family(spec.architecture)->features, spec);
  spec.vocab = TRY(read_vocab(file, spec.weights, metadata));
  TRY(file.required_float(metadata.key("attention.layer_norm_rms_epsilon")));
  spec.norm_eps = TRY(metadata.positive_or("attention.layer_norm_rms_epsilon", 0));
  TRY(read_rope(file, metadata, spec));
  spec.tied_head = spec.weights.find("output.weight") == nullptr;
  return spec;
}

Result<ModelSpec> describe_gguf(const GgufFile& file, const WeightIndex& weights) {
  ModelSpec spec = TRY(describe_gguf_sizes(file, weights));
  spec.groups = TRY(gguf_groups(spec));
  return spec;
}

}  // namespace plimsoll
