#include "tools/tiny_model/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/model/family.h"
#include "shared/model/gguf.h"
#include "tools/tiny_model/gguf_writer.h"
#include "tools/tiny_model/quantise.h"
#include "tools/tiny_model/tiny_vocab.h"

namespace plimsoll {
namespace {

using Metadata = std::vector<std::pair<std::string, GgufValue>>;

// Sizes that a test has no use for; they keep products and files small.
constexpr std::int64_t kSizeMax = 1 << 16;
constexpr std::string_view kFirstLayer = "blk.0.";

// What GGUF's `general.file_type` calls a type; a label only.
std::int64_t file_type(DType type) {
  switch (type) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 1;
    case DType::q4_0:
      return 2;
    case DType::q4_1:
      return 3;
    case DType::q8_0:
      return 7;
    case DType::q5_0:
      return 8;
    case DType::q5_1:
      return 9;
    case DType::q4_k:
      return 15;
    case DType::q5_k:
      return 17;
    case DType::q6_k:
      return 18;
    case DType::bf16:
      return 32;
  }
  return 0;
}

Status check_shape(const TinyModel& shape) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"layers", shape.layers},         {"hidden", shape.hidden},     {"heads", shape.heads},
      {"kv-heads", shape.kv_heads},     {"head-dim", shape.head_dim}, {"ffn", shape.ffn},
      {"context", shape.context_length}};
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > kSizeMax) {
      return invalid(fmt::format("tiny model: {} is {}; expected 1 to {}", name, size, kSizeMax));
    }
  }
  const Family* family = find_gguf_family(shape.architecture);
  if (family == nullptr || !family->expert_count.empty()) {
    return invalid(
        fmt::format("tiny model: the architecture is \"{}\"; expected llama, qwen2, "
                    "qwen3 or gemma3",
                    shape.architecture));
  }
  if (shape.heads % shape.kv_heads != 0) {
    return invalid(fmt::format("tiny model: kv-heads is {}; expected a divisor of the {} heads",
                               shape.kv_heads, shape.heads));
  }
  if (shape.head_dim % 2 != 0) {
    return invalid(
        fmt::format("tiny model: head-dim is {}; expected an even number", shape.head_dim));
  }
  for (const std::int64_t cols : {shape.hidden, shape.heads * shape.head_dim, shape.ffn}) {
    const DTypeInfo& type = dtype_info(type_or_stand_in(shape.type, cols));
    if (cols % type.block_length != 0) {
      return invalid(
          fmt::format("tiny model: rows of {} columns cannot be stored as {}; expected a "
                      "multiple of {}",
                      cols, type.name, type.block_length));
    }
  }
  return {};
}

Result<Metadata> tokenizer_metadata(const std::filesystem::path& vocab_from) {
  if (vocab_from.empty()) return tiny_vocab();
  const GgufFile file = TRY(GgufFile::open(vocab_from));
  Metadata metadata;
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with("tokenizer.")) metadata.emplace_back(key, value);
  }
  return metadata;
}

std::int64_t vocab_size(const Metadata& tokenizer) {
  for (const auto& [key, value] : tokenizer) {
    const auto* tokens = std::get_if<std::vector<std::string>>(&value);
    if (key == "tokenizer.ggml.tokens" && tokens != nullptr) return std::ssize(*tokens);
  }
  return 0;
}

class Maker {
 public:
  Maker(const TinyModel& shape, std::int64_t vocab)
      : shape_(shape),
        vocab_(vocab),
        features_(find_gguf_family(shape.architecture)->features),
        random_(shape.seed) {}

  void add_metadata(const Metadata& tokenizer) {
    writer_.add("general.architecture", shape_.architecture);
    writer_.add("general.name", fmt::format("tiny {}", dtype_info(shape_.type).name));
    writer_.add("general.file_type", file_type(shape_.type));
    writer_.add("general.quantization_version", std::int64_t{2});
    add_sized("block_count", shape_.layers);
    add_sized("context_length", shape_.context_length);
    add_sized("embedding_length", shape_.hidden);
    add_sized("feed_forward_length", shape_.ffn);
    add_sized("attention.head_count", shape_.heads);
    add_sized("attention.head_count_kv", shape_.kv_heads);
    add_sized("attention.key_length", shape_.head_dim);
    add_sized("attention.value_length", shape_.head_dim);
    writer_.add(fmt::format("{}.attention.layer_norm_rms_epsilon", shape_.architecture), 1e-5);
    add_sized("rope.dimension_count", shape_.head_dim);
    writer_.add(fmt::format("{}.rope.freq_base", shape_.architecture), rope_base());
    add_sized("vocab_size", vocab_);
    if (shape_.window > 0) add_sized("attention.sliding_window", shape_.window);
    if (shape_.window_pattern > 0) {
      add_sized("attention.sliding_window_pattern", shape_.window_pattern);
    }
    for (const auto& [key, value] : tokenizer) writer_.add(key, value);
  }

  void add_weights() {
    // A final norm leaves a size of one a column, so logits spread by about two.
    const double spread = 2 / std::sqrt(static_cast<double>(shape_.hidden));
    add_matrix("token_embd", vocab_, shape_.hidden, spread);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      if (layer > 0 && shape_.same_layers) {
        copy_layer(layer);
      } else {
        add_layer(layer);
      }
    }
    add_norm("output_norm", shape_.hidden);
    if (!shape_.tied_head) add_matrix("output", vocab_, shape_.hidden, spread);
    if (shape_.rope_freqs) add_rope_freqs();
  }

  std::string file() const { return writer_.file(); }

 private:
  // Nearly normal, of deviation one: the sum of four uniform 16-bit numbers, the same everywhere.
  double normal() {
    const std::uint64_t bits = random_();
    std::uint64_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += bits >> (16 * i) & 0xffffU;
    return (static_cast<double>(sum) / 65535 - 2) * std::sqrt(3.0);
  }

  void add_weight(std::string name, DType type, std::vector<std::int64_t> shape,
                  std::vector<std::byte> blocks) {
    if (name.starts_with(kFirstLayer)) first_layer_.push_back(name.substr(kFirstLayer.size()));
    writer_.add_weight(std::move(name), type, std::move(shape), std::move(blocks));
  }

  void add_matrix(std::string_view name, std::int64_t rows, std::int64_t cols, double deviation) {
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    for (float& value : values) value = static_cast<float>(normal() * deviation);
    const DType type = type_or_stand_in(shape_.type, cols);
    add_weight(fmt::format("{}.weight", name), type, {rows, cols}, quantise(type, values));
  }

  // Outputs are as large as inputs.
  void add_linear(std::string_view name, std::int64_t rows, std::int64_t cols) {
    add_matrix(name, rows, cols, 1 / std::sqrt(static_cast<double>(cols)));
  }

  void add_sized(std::string_view key, std::int64_t value) {
    writer_.add(fmt::format("{}.{}", shape_.architecture, key), value);
  }

  void add_vector(std::string_view name, const std::vector<float>& values,
                  std::string_view kind = "weight") {
    add_weight(fmt::format("{}.{}", name, kind), DType::f32, {std::ssize(values)},
               quantise(DType::f32, values));
  }

  void add_bias(std::string_view name, std::int64_t size) {
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& value : values) value = static_cast<float>(0.5 * normal());
    add_vector(name, values, "bias");
  }

  // Of Gemma 3's layers with a window it is 10,000.
  double rope_base() const { return shape_.architecture == "gemma3" ? 1e6 : 1e4; }

  bool has(Features feature) const { return (features_ & feature) != 0; }

  // What some families have beside Llama's weights.
  void add_further(std::int64_t layer) {
    const auto name = [layer](std::string_view weight) {
      return fmt::format("blk.{}.{}", layer, weight);
    };
    if (has(feature::kQkvBias)) {
      add_bias(name("attn_q"), shape_.heads * shape_.head_dim);
      add_bias(name("attn_k"), shape_.kv_heads * shape_.head_dim);
      add_bias(name("attn_v"), shape_.kv_heads * shape_.head_dim);
    }
    if (has(feature::kQkNorm)) {
      add_norm(name("attn_q_norm"), shape_.head_dim);
      add_norm(name("attn_k_norm"), shape_.head_dim);
    }
    if (has(feature::kSandwichNorms)) {
      add_norm(name("post_attention_norm"), shape_.hidden);
      add_norm(name("post_ffw_norm"), shape_.hidden);
    }
  }

  void add_norm(std::string_view name, std::int64_t size) {
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& value : values) value = static_cast<float>(1 + 0.1 * normal());
    add_vector(name, values);
  }

  // As Llama 3 does: of waves up to 64 positions long frequencies stay, of those above 256 they are
  // divided by eight, and between by what lies between.
  void add_rope_freqs() {
    constexpr double kFactor = 8, kLongest = 256, kShortest = 64;
    std::vector<float> values(static_cast<std::size_t>(shape_.head_dim / 2));
    for (std::size_t j = 0; j < values.size(); ++j) {
      const double exponent = 2 * static_cast<double>(j) / static_cast<double>(shape_.head_dim);
      const double wave = 2 * std::numbers::pi * std::pow(rope_base(), exponent);
      const double smooth =
          std::clamp((kLongest / wave - 1) / (kLongest / kShortest - 1), 0.0, 1.0);
      values[j] = static_cast<float>(1 / ((1 - smooth) / kFactor + smooth));
    }
    add_vector("rope_freqs", values);
  }

  // Of the first.
  void copy_layer(std::int64_t layer) {
    for (const std::string& weight : first_layer_) {
      writer_.add_copy(fmt::format("blk.{}.{}", layer, weight), std::string(kFirstLayer) + weight);
    }
  }

  void add_layer(std::int64_t layer) {
    const auto name = [layer](std::string_view weight) {
      return fmt::format("blk.{}.{}", layer, weight);
    };
    const std::int64_t q_width = shape_.heads * shape_.head_dim;
    const std::int64_t kv_width = shape_.kv_heads * shape_.head_dim;
    add_norm(name("attn_norm"), shape_.hidden);
    add_linear(name("attn_q"), q_width, shape_.hidden);
    add_linear(name("attn_k"), kv_width, shape_.hidden);
    add_linear(name("attn_v"), kv_width, shape_.hidden);
    add_linear(name("attn_output"), shape_.hidden, q_width);
    add_norm(name("ffn_norm"), shape_.hidden);
    add_linear(name("ffn_gate"), shape_.ffn, shape_.hidden);
    add_linear(name("ffn_up"), shape_.ffn, shape_.hidden);
    add_linear(name("ffn_down"), shape_.hidden, shape_.ffn);
    add_further(layer);
  }

  const TinyModel& shape_;
  std::int64_t vocab_;
  Features features_;
  std::mt19937_64 random_;
  GgufWriter writer_;
  std::vector<std::string> first_layer_;  // names of its weights
};

}  // namespace

Result<std::string> make_tiny_model(const TinyModel& shape) {
  TRY(check_shape(shape));
  const Metadata tokenizer = TRY(tokenizer_metadata(shape.vocab_from));
  const std::int64_t vocab = vocab_size(tokenizer);
  if (vocab == 0) {
    return invalid(fmt::format("tiny model: {} has no vocabulary (tokenizer.ggml.tokens)",
                               shape.vocab_from.native()));
  }
  Maker maker(shape, vocab);
  maker.add_metadata(tokenizer);
  maker.add_weights();
  return maker.file();
}

}  // namespace plimsoll
