#include "tools/tiny_model/tiny_model.h"

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/model/gguf.h"
#include "tools/tiny_model/gguf_writer.h"
#include "tools/tiny_model/quantise.h"
#include "tools/tiny_model/tiny_vocab.h"

namespace plimsoll {
namespace {

using Metadata = std::vector<std::pair<std::string, GgufValue>>;

// Sizes that a test has no use for; they keep products and files small.
constexpr std::int64_t kSizeMax = 1 << 16;

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

DType type_for(DType type, std::int64_t cols) {
  if (cols % dtype_info(type).block_length == 0) return type;
  switch (type) {
    case DType::q4_k:
      return DType::q5_0;
    case DType::q5_k:
      return DType::q5_1;
    case DType::q6_k:
      return DType::q8_0;
    default:
      return type;
  }
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
  if (shape.heads % shape.kv_heads != 0) {
    return invalid(fmt::format("tiny model: kv-heads is {}; expected a divisor of the {} heads",
                               shape.kv_heads, shape.heads));
  }
  if (shape.head_dim % 2 != 0) {
    return invalid(
        fmt::format("tiny model: head-dim is {}; expected an even number", shape.head_dim));
  }
  for (const std::int64_t cols : {shape.hidden, shape.heads * shape.head_dim, shape.ffn}) {
    const DTypeInfo& type = dtype_info(type_for(shape.type, cols));
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
      : shape_(shape), vocab_(vocab), random_(shape.seed) {}

  void add_metadata(const Metadata& tokenizer) {
    writer_.add("general.architecture", std::string("llama"));
    writer_.add("general.name", fmt::format("tiny {}", dtype_info(shape_.type).name));
    writer_.add("general.file_type", file_type(shape_.type));
    writer_.add("general.quantization_version", std::int64_t{2});
    writer_.add("llama.block_count", shape_.layers);
    writer_.add("llama.context_length", shape_.context_length);
    writer_.add("llama.embedding_length", shape_.hidden);
    writer_.add("llama.feed_forward_length", shape_.ffn);
    writer_.add("llama.attention.head_count", shape_.heads);
    writer_.add("llama.attention.head_count_kv", shape_.kv_heads);
    writer_.add("llama.attention.key_length", shape_.head_dim);
    writer_.add("llama.attention.value_length", shape_.head_dim);
    writer_.add("llama.attention.layer_norm_rms_epsilon", 1e-5);
    writer_.add("llama.rope.dimension_count", shape_.head_dim);
    writer_.add("llama.rope.freq_base", 10000.0);
    writer_.add("llama.vocab_size", vocab_);
    for (const auto& [key, value] : tokenizer) writer_.add(key, value);
  }

  void add_weights() {
    // A final norm leaves a size of one a column, so logits spread by about two.
    const double spread = 2 / std::sqrt(static_cast<double>(shape_.hidden));
    add_matrix("token_embd", vocab_, shape_.hidden, spread);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) add_layer(layer);
    add_norm("output_norm");
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

  void add_matrix(std::string_view name, std::int64_t rows, std::int64_t cols, double deviation) {
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    for (float& value : values) value = static_cast<float>(normal() * deviation);
    const DType type = type_for(shape_.type, cols);
    writer_.add_weight(fmt::format("{}.weight", name), type, {rows, cols}, quantise(type, values));
  }

  // Outputs are as large as inputs.
  void add_linear(std::string_view name, std::int64_t rows, std::int64_t cols) {
    add_matrix(name, rows, cols, 1 / std::sqrt(static_cast<double>(cols)));
  }

  void add_vector(std::string_view name, const std::vector<float>& values) {
    writer_.add_weight(fmt::format("{}.weight", name), DType::f32, {std::ssize(values)},
                       quantise(DType::f32, values));
  }

  void add_norm(std::string_view name) {
    std::vector<float> values(static_cast<std::size_t>(shape_.hidden));
    for (float& value : values) value = static_cast<float>(1 + 0.1 * normal());
    add_vector(name, values);
  }

  // As Llama 3 does: high frequencies stay, low ones are divided by eight.
  void add_rope_freqs() {
    std::vector<float> values(static_cast<std::size_t>(shape_.head_dim / 2), 1.0F);
    for (std::size_t i = values.size() / 2; i < values.size(); ++i) values[i] = 8.0F;
    add_vector("rope_freqs", values);
  }

  void add_layer(std::int64_t layer) {
    const auto name = [layer](std::string_view weight) {
      return fmt::format("blk.{}.{}", layer, weight);
    };
    const std::int64_t q_width = shape_.heads * shape_.head_dim;
    const std::int64_t kv_width = shape_.kv_heads * shape_.head_dim;
    add_norm(name("attn_norm"));
    add_linear(name("attn_q"), q_width, shape_.hidden);
    add_linear(name("attn_k"), kv_width, shape_.hidden);
    add_linear(name("attn_v"), kv_width, shape_.hidden);
    add_linear(name("attn_output"), shape_.hidden, q_width);
    add_norm(name("ffn_norm"));
    add_linear(name("ffn_gate"), shape_.ffn, shape_.hidden);
    add_linear(name("ffn_up"), shape_.ffn, shape_.hidden);
    add_linear(name("ffn_down"), shape_.hidden, shape_.ffn);
  }

  const TinyModel& shape_;
  std::int64_t vocab_;
  std::mt19937_64 random_;
  GgufWriter writer_;
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
