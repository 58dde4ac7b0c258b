#include "shared/model/hf_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "shared/base/shown_text.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

using namespace feature;  // NOLINT(google-build-using-namespace): constants of weight_table.h

constexpr std::int64_t kLayersMax = 4096;
constexpr JsonLimits kLimits{.depth_max = 32, .values_max = 200'000};

// config.json's that hold the text model's as a member, and where its weights are.
struct Wrapper {
  std::string_view model_type;
  std::string_view prefix;
};
constexpr std::array kWrappers = {
    Wrapper{"kimi_k25", "language_model.model."},
    Wrapper{"gemma3", "language_model.model."},
    Wrapper{"mistral3", "language_model.model."},
};

std::string known_types() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.emplace_back(family.model_type);
  for (const Wrapper& wrapper : kWrappers) names.emplace_back(wrapper.model_type);
  return join(names, ", ");
}

// Reads the sizes of one text model into a HfConfig.
class Reader {
 public:
  Reader(const ConfigObject& text, const Family& family, HfConfig& out)
      : text_(text), family_(family), out_(out), spec_(out.spec) {}

  Status read() {
    spec_.architecture = family_.architecture;
    spec_.weight_source = WeightSource::config;
    out_.features = family_.features;
    spec_.layers = TRY(text_.size("num_hidden_layers", kLayersMax));
    spec_.hidden = TRY(text_.size("hidden_size"));
    TRY(read_heads());
    TRY(read_biases());
    TRY(read_window());
    spec_.vocab = TRY(with_default("vocab_size", family_.defaults.vocab));
    spec_.context_length = TRY(
        with_default("max_position_embeddings", family_.defaults.context_length, kModelLengthMax));
    TRY(read_experts());
    TRY(read_rope());
    TRY(read_stretch());
    const std::int64_t mtp = TRY(text_.count_or("num_nextn_predict_layers", 0, 16));
    spec_.mtp_layers = mtp;
    return {};
  }

 private:
  // A member that the model's own code has a value for.
  Result<std::int64_t> with_default(std::string_view key, std::int64_t value,
                                    std::int64_t size_max = kModelSizeMax) {
    if (value == 0 || text_.has(key)) return text_.size(key, size_max);
    spec_.assumptions.push_back(fmt::format("{} is {}: the default of model_type {}",
                                            text_.name(key), value, family_.model_type));
    return value;
  }

  Status read_heads() {
    const ConfigDefaults& defaults = family_.defaults;
    spec_.heads = TRY(with_default("num_attention_heads", defaults.heads));
    if ((out_.features & kLatent) != 0) return read_latent();
    spec_.kv_heads = defaults.kv_heads == 0
                         ? TRY(text_.size_or("num_key_value_heads", spec_.heads))
                         : TRY(with_default("num_key_value_heads", defaults.kv_heads));
    if (spec_.heads % spec_.kv_heads != 0) {
      return invalid(fmt::format("{} is {}; expected a divisor of the {} heads",
                                 text_.name("num_key_value_heads"), spec_.kv_heads, spec_.heads));
    }
    if (text_.has("head_dim") || defaults.head_dim != 0) {
      spec_.head_dim = TRY(with_default("head_dim", defaults.head_dim));
      return {};
    }
    if (spec_.hidden % spec_.heads != 0) {
      return invalid(fmt::format("{} is missing, and {} columns do not divide over {} heads",
                                 text_.name("head_dim"), spec_.hidden, spec_.heads));
    }
    spec_.head_dim = spec_.hidden / spec_.heads;
    return {};
  }

  Status read_latent() {
    LatentAttention latent;
    latent.q_rank = TRY(text_.count_or("q_lora_rank", 0));
    latent.kv_rank = TRY(text_.size("kv_lora_rank"));
    latent.nope_dim = TRY(text_.size("qk_nope_head_dim"));
    latent.rope_dim = TRY(text_.size("qk_rope_head_dim"));
    latent.value_dim = TRY(text_.size("v_head_dim"));
    latent.has_kv_b = true;
    if (latent.q_rank > 0) out_.features |= kQueryRank;
    spec_.kv_heads = 1;
    spec_.head_dim = latent.nope_dim + latent.rope_dim;
    spec_.latent = latent;
    return {};
  }

  Status read_biases() {
    if (TRY(text_.bool_or("attention_bias", false))) out_.features |= kQkvBias | kOutputBias;
    if (TRY(text_.bool_or("mlp_bias", false))) out_.features |= kFfnBias;
    return {};
  }

  Status read_window() {
    if (family_.window == WindowRule::never) return {};
    if (family_.window == WindowRule::where_switched &&
        !TRY(text_.bool_or("use_sliding_window", false))) {
      return {};
    }
    const bool is_pattern = family_.window == WindowRule::pattern;
    const std::int64_t window = is_pattern
                                    ? TRY(text_.size("sliding_window", kModelLengthMax))
                                    : TRY(text_.count_or("sliding_window", 0, kModelLengthMax));
    if (window == 0) return {};
    spec_.window = window;
    return read_full_layers();
  }

  Status read_full_layers() {
    const auto types = TRY(text_.texts("layer_types"));
    if (!types.empty() && std::ssize(types) != spec_.layers) {
      return invalid(fmt::format("{} has {} entries; expected one for each of the {} layers",
                                 text_.name("layer_types"), types.size(), spec_.layers));
    }
    const std::int64_t period = TRY(text_.size_or("sliding_window_pattern", 6));
    const std::int64_t first = TRY(text_.count_or("max_window_layers", 0));
    for (std::int64_t layer = 0; layer < spec_.layers; ++layer) {
      bool is_full = false;
      if (!types.empty()) {
        is_full = types[static_cast<std::size_t>(layer)] == "full_attention";
      } else if (family_.window == WindowRule::pattern) {
        is_full = (layer + 1) % period == 0;
      } else if (family_.window == WindowRule::where_switched) {
        is_full = layer < first;
      }
      if (is_full) spec_.full_layers.push_back(layer);
    }
    if (std::ssize(spec_.full_layers) == spec_.layers) {
      spec_.window = 0;
      spec_.full_layers.clear();
    }
    return {};
  }

  Status read_experts() {
    out_.has_experts.assign(static_cast<std::size_t>(spec_.layers), false);
    ExpertShape& experts = spec_.experts;
    if (!family_.expert_count.empty()) {
      experts.count = TRY(text_.count_or(family_.expert_count, 0));
    }
    if (experts.count > 0) {
      const bool is_mixtral = (out_.features & kMixtralNames) != 0;
      experts.used = TRY(text_.size("num_experts_per_tok"));
      experts.ffn = TRY(text_.size(is_mixtral ? "intermediate_size" : "moe_intermediate_size"));
      TRY(read_shared());
      TRY(read_expert_layers());
    }
    // Some configs of models without dense layers leave it out.
    const bool has_dense = experts.layers < spec_.layers;
    spec_.ffn = has_dense ? TRY(text_.size("intermediate_size")) : experts.ffn;
    return {};
  }

  Status read_shared() {
    ExpertShape& experts = spec_.experts;
    if ((out_.features & kSharedSingular) != 0) {
      experts.shared_ffn = TRY(text_.count_or("shared_expert_intermediate_size", 0));
    } else {
      experts.shared_ffn = TRY(text_.count_or("n_shared_experts", 0, 64)) * experts.ffn;
    }
    if (experts.shared_ffn > 0) out_.features |= kSharedExperts;
    return {};
  }

  Status read_expert_layers() {
    const auto dense = TRY(text_.integers("mlp_only_layers"));
    const std::int64_t step = TRY(text_.size_or("decoder_sparse_step", 1));
    const std::int64_t first = TRY(text_.count_or("first_k_dense_replace", 0));
    const std::int64_t every = TRY(text_.size_or("moe_layer_freq", 1));
    for (std::int64_t layer = 0; layer < spec_.layers; ++layer) {
      const bool is_dense = std::ranges::find(dense, layer) != dense.end() ||
                            (layer + 1) % step != 0 || layer < first || layer % every != 0;
      out_.has_experts[static_cast<std::size_t>(layer)] = !is_dense;
      spec_.experts.layers += is_dense ? 0 : 1;
    }
    return {};
  }

  // How far rotations are stretched beyond what the model was trained with. Gemma 3 counts it in.
  Status read_stretch() {
    auto scaling = TRY(text_.object("rope_scaling"));
    if (!scaling) scaling = TRY(text_.object("rope_parameters"));
    if (!scaling || spec_.architecture == "gemma3") return {};
    std::string type = TRY(scaling->text_or("type", std::string()));
    type = TRY(scaling->text_or("rope_type", std::move(type)));
    if (type != "yarn" && type != "linear" && type != "dynamic") return {};
    const double factor = TRY(scaling->positive_or("factor", 1));
    const std::int64_t original = type == "yarn"
                                      ? TRY(scaling->size_or("original_max_position_embeddings",
                                                             spec_.context_length, kModelLengthMax))
                                      : spec_.context_length;
    const double stretched = static_cast<double>(original) * factor;
    if (stretched > static_cast<double>(kModelLengthMax)) {
      return invalid(fmt::format("{} is {}; expected at most {} tokens in all",
                                 scaling->name("factor"), factor, kModelLengthMax));
    }
    spec_.context_length = std::max(spec_.context_length, static_cast<std::int64_t>(stretched));
    return {};
  }

  Status read_rope() {
    spec_.norm_eps = TRY(text_.positive_or("rms_norm_eps", 1e-6));
    const auto parameters = TRY(text_.object("rope_parameters"));
    const double base = parameters ? TRY(parameters->positive_or("rope_theta", 10'000)) : 10'000;
    spec_.rope_base = TRY(text_.positive_or("rope_theta", base));
    const double part = TRY(text_.positive_or("partial_rotary_factor", 1));
    spec_.rope_dim =
        spec_.latent
            ? spec_.latent->rope_dim
            : static_cast<std::int64_t>(static_cast<double>(spec_.head_dim) * std::min(part, 1.0));
    spec_.rope_pairing = spec_.latent ? RopePairing::interleaved : RopePairing::half_split;
    return {};
  }

  const ConfigObject& text_;
  const Family& family_;
  HfConfig& out_;
  ModelSpec& spec_;
};

// "bfloat16", "torch.float16" to the types of safetensors.
Result<std::string> plain_type(const ConfigObject& text, const ConfigObject& top,
                               std::vector<std::string>& assumptions) {
  for (const ConfigObject* object : {&text, &top}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      std::string name = TRY(object->text_or(key, ""));
      if (name.empty() || name == "auto") continue;
      if (name.starts_with("torch.")) name.erase(0, 6);
      const std::string type = name == "bfloat16"  ? "BF16"
                               : name == "float16" ? "F16"
                               : name == "float32" ? "F32"
                                                   : "";
      if (type.empty()) {
        return invalid(fmt::format("{} is \"{}\"; expected bfloat16, float16 or float32",
                                   object->name(key), to_valid_utf8(name)));
      }
      assumptions.push_back(
          fmt::format("weights that are not quantised are {}: {}", type, object->name(key)));
      return type;
    }
  }
  assumptions.emplace_back("weights that are not quantised are BF16: config.json has no dtype");
  return std::string("BF16");
}

Status read_vision_part(const ConfigObject& top, const std::string& wrapper, HfConfig& out) {
  const auto vision = TRY(top.object("vision_config"));
  if (!vision) return {};
  out.vision = TRY(read_vision(wrapper, *vision, out.spec.hidden));
  out.has_unknown_vision = !out.vision;
  if (out.vision) out.spec.vision = out.vision->tower;
  return {};
}

}  // namespace

Result<HfConfig> parse_hf_config(const Json& json) {
  if (!json.is_object()) return invalid("config.json is no object");
  const ConfigObject top(json, "");
  const std::string outer = TRY(top.text_or("model_type", ""));
  const auto nested = TRY(top.object("text_config"));
  const ConfigObject& text = nested ? *nested : top;
  const auto* wrapper = std::ranges::find(kWrappers, outer, &Wrapper::model_type);
  HfConfig out;
  out.prefix = nested && wrapper != kWrappers.end() ? wrapper->prefix : "model.";
  const std::string inner = TRY(text.text_or("model_type", ""));
  const Family* family = find_family(inner);
  if (family == nullptr) {
    return invalid(fmt::format("{} is \"{}\", a kind of model that is not known to us; known: {}",
                               text.name("model_type"), to_valid_utf8(inner.substr(0, 80)),
                               known_types()));
  }
  TRY(Reader(text, *family, out).read());
  out.spec.name = shown_line(TRY(top.text_or("_name_or_path", outer)));
  const bool tied = TRY(text.bool_or("tie_word_embeddings", family->defaults.tied_head));
  out.spec.tied_head = TRY(top.bool_or("tie_word_embeddings", tied));
  if (!out.spec.tied_head) out.features |= kSeparateHead;
  tell_features(out.features, out.spec);
  out.quantisation = TRY(read_quantisation(text));
  if (out.quantisation.words.empty()) out.quantisation = TRY(read_quantisation(top));
  out.spec.quantisation = out.quantisation.words;
  out.plain_type = TRY(plain_type(text, top, out.spec.assumptions));
  TRY(read_vision_part(top, outer, out));
  return out;
}

Result<HfConfig> parse_hf_config(std::string_view text) {
  return parse_hf_config(TRY_CONTEXT("config.json: ", parse_json(text, kLimits)));
}

}  // namespace plimsoll
