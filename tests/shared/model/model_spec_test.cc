#include "shared/model/model_spec.h"

#include <functional>
#include <optional>

#include <gtest/gtest.h>

#include "tests/support/test_data.h"
#include "tools/tiny_model/gguf_writer.h"
#include "tools/tiny_model/tiny_model.h"

namespace plimsoll {
namespace {

// A tiny model's file, taken apart to be changed and put together again.
struct Parts {
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::map<std::string, WeightInfo, std::less<>> weights;  // offsets are not kept

  void set(const std::string& key, GgufValue value) { metadata[key] = std::move(value); }
  void add(const std::string& name, std::vector<std::int64_t> shape) {
    weights[name] = {name, DType::f32, std::move(shape), 0, 0};
  }
};

std::string changed_file(const std::function<void(Parts&)>& change, const TinyModel& shape = {}) {
  const std::string bytes = make_tiny_model(shape).value();
  const GgufFile file = std::move(GgufFile::parse(std::as_bytes(std::span(bytes))).value());
  Parts parts{file.metadata(), file.weights().all()};
  change(parts);
  GgufWriter writer;
  for (const auto& [key, value] : parts.metadata) writer.add(key, value);
  for (const auto& [name, weight] : parts.weights) {
    const Bytes size = stored_bytes(weight.dtype, weight.rows() * weight.cols());
    writer.add_weight(name, weight.dtype, weight.shape,
                      std::vector<std::byte>(static_cast<std::size_t>(size)));
  }
  return writer.file();
}

Result<ModelSpec> spec_of(const std::string& bytes) {
  const GgufFile file = TRY(GgufFile::parse(std::as_bytes(std::span(bytes))));
  return read_model_spec(file);
}

void expect_refused(const std::function<void(Parts&)>& change, std::string_view words) {
  const auto spec = spec_of(changed_file(change));
  ASSERT_FALSE(spec) << "expected a refusal with: " << words;
  EXPECT_NE(spec.error().message.find(words), std::string::npos)
      << "expected: " << words << "\nmessage:  " << spec.error().message;
  EXPECT_EQ(exit_code(spec.error().code), 78);
}

TEST(ModelSpec, ReadsAShape) {
  TinyModel shape;
  shape.layers = 3;
  shape.tied_head = false;
  shape.rope_freqs = true;
  const auto spec = spec_of(make_tiny_model(shape).value());
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->architecture, "llama");
  EXPECT_EQ(spec->file_type, "Q4_0");
  EXPECT_EQ(spec->layers, 3);
  EXPECT_EQ(spec->hidden, 128);
  EXPECT_EQ(spec->ffn, 256);
  EXPECT_EQ(spec->heads, 8);
  EXPECT_EQ(spec->kv_heads, 4);
  EXPECT_EQ(spec->head_dim, 32);
  EXPECT_EQ(spec->vocab, 283);
  EXPECT_EQ(spec->context_length, 512);
  EXPECT_FLOAT_EQ(static_cast<float>(spec->norm_eps), 1e-5F);
  EXPECT_EQ(spec->rope_dim, 32);
  EXPECT_EQ(spec->rope_scale, 1);
  EXPECT_EQ(spec->rope_pairing, RopePairing::interleaved);
  EXPECT_FALSE(spec->tied_head);
  EXPECT_TRUE(spec->has_rope_freqs);
  EXPECT_EQ(spec->kv_bytes_per_token(4), 3 * 2 * 4 * 32 * 2);
}

TEST(ModelSpec, ReadsTheDefaultModel) {
  SKIP_WITHOUT(default_model_path());
  const auto file = GgufFile::open(default_model_path());
  ASSERT_TRUE(file) << file.error().message;
  const auto spec = read_model_spec(*file);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->file_type, "Q4_1");
  EXPECT_EQ(spec->layers, 30);
  EXPECT_EQ(spec->hidden, 576);
  EXPECT_EQ(spec->ffn, 1536);
  EXPECT_EQ(spec->heads, 9);
  EXPECT_EQ(spec->kv_heads, 3);
  EXPECT_EQ(spec->head_dim, 64);
  EXPECT_EQ(spec->vocab, 49152);
  EXPECT_EQ(spec->context_length, 8192);
  EXPECT_EQ(spec->rope_base, 100000);
  EXPECT_TRUE(spec->tied_head);
  EXPECT_EQ(spec->kv_bytes_per_token(3), 23040);
}

TEST(ModelSpec, AbsentMetadataHaveTheFormatsDefaults) {
  const TinyModel shape{.heads = 4, .kv_heads = 4};
  const auto spec = spec_of(changed_file(
      [](Parts& parts) {
        for (const char* key : {"llama.attention.head_count_kv", "llama.attention.key_length",
                                "llama.attention.value_length", "llama.rope.dimension_count",
                                "llama.rope.freq_base", "llama.vocab_size", "general.name"}) {
          EXPECT_EQ(parts.metadata.erase(key), 1U) << key;
        }
      },
      shape));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->kv_heads, 4);
  EXPECT_EQ(spec->head_dim, 32);
  EXPECT_EQ(spec->rope_dim, 32);
  EXPECT_EQ(spec->rope_base, 10000);
  EXPECT_EQ(spec->vocab, 283);
  EXPECT_EQ(spec->name, "llama");
}

TEST(ModelSpec, ItsNameIsOneLineOfText) {
  const auto spec = spec_of(
      changed_file([](Parts& parts) { parts.set("general.name", std::string("a\nb\x1b[2J")); }));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "a b\\x1b[2J");
}

TEST(ModelSpec, WithoutAVocabularyTheEmbeddingSaysItsSize) {
  const auto spec = spec_of(changed_file([](Parts& parts) {
    parts.metadata.erase("llama.vocab_size");
    parts.metadata.erase("tokenizer.ggml.tokens");
  }));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->vocab, 283);
}

TEST(ModelSpec, LinearRopeScalingDividesPositions) {
  const auto spec = spec_of(changed_file([](Parts& parts) {
    parts.set("llama.rope.scaling.type", std::string("linear"));
    parts.set("llama.rope.scaling.factor", 4.0);
  }));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->rope_scale, 4);
  const auto none = spec_of(changed_file([](Parts& parts) {
    parts.set("llama.rope.scaling.type", std::string("none"));
    parts.set("llama.rope.scaling.factor", 4.0);
  }));
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ(none->rope_scale, 1);
}

TEST(ModelSpec, ASlidingWindowIsEveryLayers) {
  const auto spec = spec_of(changed_file(
      [](Parts& parts) { parts.set("llama.attention.sliding_window", std::int64_t{256}); }));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->context_length, 512);
  EXPECT_EQ(spec->window, 256);
  EXPECT_TRUE(spec->has_window(0) && spec->has_window(1));
  EXPECT_EQ(spec->window_rope_base, 0);
}

Result<ModelSpec> tiny_spec(const TinyModel& shape) {
  return spec_of(changed_file([](Parts&) {}, shape));
}

TEST(ModelSpec, FamiliesSayWhatTheirLayersHave) {
  const auto qwen2 = tiny_spec({.architecture = "qwen2"});
  ASSERT_TRUE(qwen2) << qwen2.error().message;
  EXPECT_TRUE(qwen2->has_qkv_bias && !qwen2->has_qk_norms && !qwen2->has_post_norms);
  EXPECT_EQ(qwen2->rope_pairing, RopePairing::half_split);
  const auto qwen3 = tiny_spec({.architecture = "qwen3"});
  ASSERT_TRUE(qwen3) << qwen3.error().message;
  EXPECT_TRUE(!qwen3->has_qkv_bias && qwen3->has_qk_norms && !qwen3->has_post_norms);
  const auto gemma =
      tiny_spec({.architecture = "gemma3", .layers = 4, .window = 16, .window_pattern = 3});
  ASSERT_TRUE(gemma) << gemma.error().message;
  EXPECT_TRUE(!gemma->has_qkv_bias && gemma->has_qk_norms && gemma->has_post_norms);
  EXPECT_EQ(gemma->full_layers, std::vector<std::int64_t>{2});
  EXPECT_TRUE(gemma->has_window(1) && !gemma->has_window(2) && gemma->has_window(3));
  EXPECT_EQ(gemma->rope_base, 1e6);
  EXPECT_EQ(gemma->window_rope_base, 1e4);
}

TEST(ModelSpec, AnArrayOfEqualEntriesIsOneSize) {
  const std::string key = "llama.attention.head_count_kv";
  const auto spec = spec_of(changed_file([&](Parts& parts) {
    parts.set(key, std::vector<std::int64_t>{4, 4});
  }));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->kv_heads, 4);
  expect_refused(
      [&](Parts& parts) {
        parts.set(key, std::vector<std::int64_t>{4, 2});
      },
      "4 in layer 0, 2 in layer 1");
  expect_refused([&](Parts& parts) { parts.set(key, std::vector<std::int64_t>{}); },
                 "an empty array");
}

TEST(ModelSpec, NamesAnArchitectureThatItCannotRun) {
  expect_refused([](Parts& parts) { parts.set("general.architecture", std::string("qwen3moe")); },
                 "architecture is \"qwen3moe\"");
  expect_refused([](Parts& parts) { parts.set("general.architecture", std::string("qwen3moe")); },
                 "supported: llama (SmolLM2, Llama 2 and 3, Mistral), qwen2 (Qwen 2 and 2.5), "
                 "qwen3 (Qwen 3), gemma3 (Gemma 3)");
  expect_refused([](Parts& parts) { parts.metadata.erase("general.architecture"); },
                 "general.architecture is missing");
}

TEST(ModelSpec, RefusesOddMetadata) {
  const auto with = [](const std::string& key, GgufValue value) {
    return [key, value](Parts& parts) { parts.set(key, value); };
  };
  expect_refused([](Parts& parts) { parts.metadata.erase("llama.block_count"); },
                 "llama.block_count is missing");
  expect_refused(
      [](Parts& parts) { parts.metadata.erase("llama.attention.layer_norm_rms_epsilon"); },
      "layer_norm_rms_epsilon is missing");
  expect_refused(with("llama.block_count", std::int64_t{0}), "is 0; expected 1 to");
  expect_refused(with("llama.embedding_length", std::int64_t{1} << 40), "expected 1 to 1048576");
  expect_refused(with("llama.block_count", std::string("two")), "is a string; expected an integer");
  expect_refused(with("llama.attention.head_count_kv", std::int64_t{3}),
                 "a divisor of the 8 heads");
  expect_refused(with("llama.attention.value_length", std::int64_t{64}), "value heads are as wide");
  expect_refused(with("llama.rope.dimension_count", std::int64_t{33}), "an even number up to");
  expect_refused(with("llama.rope.dimension_count", std::int64_t{64}), "an even number up to");
  expect_refused(with("llama.rope.freq_base", -1.0), "expected a positive number");
  expect_refused(with("llama.rope.scaling.type", std::string("yarn")), "\"yarn\", which cannot");
  expect_refused(with("llama.rope.scaling.type", std::string("longrope")), "\"longrope\"");
  expect_refused(with("llama.expert_count", std::int64_t{8}), "a mixture of 8 experts");
}

TEST(ModelSpec, RefusesWeightsThatAreMissingOrHaveAnotherShape) {
  expect_refused([](Parts& parts) { parts.weights.erase("blk.1.ffn_up.weight"); },
                 "no weight blk.1.ffn_up.weight; expected one of shape [256, 128]");
  expect_refused(
      [](Parts& parts) {
        parts.add("blk.0.attn_k.weight", {64, 128});
      },
      "blk.0.attn_k.weight has the shape [64, 128]; the metadata say [128, 128]");
  expect_refused(
      [](Parts& parts) {
        parts.add("output_norm.weight", {1, 128});
      },
      "has the shape [1, 128]; the metadata say [128]");
  expect_refused([](Parts& parts) { parts.set("llama.vocab_size", std::int64_t{300}); },
                 "token_embd.weight has the shape [283, 128]; the metadata say [300, 128]");
}

TEST(ModelSpec, RefusesHeadsThatTheKernelsCannotRun) {
  const auto refusal = [](std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
    const auto spec = spec_of(changed_file([&](Parts& parts) {
      parts.set("llama.attention.head_count", heads);
      parts.set("llama.attention.head_count_kv", kv_heads);
      parts.set("llama.attention.key_length", head_dim);
      parts.set("llama.attention.value_length", head_dim);
      parts.set("llama.rope.dimension_count", head_dim);
      for (const char* layer : {"blk.0.", "blk.1."}) {
        const std::string prefix = layer;
        parts.add(prefix + "attn_q.weight", {heads * head_dim, 128});
        parts.add(prefix + "attn_k.weight", {kv_heads * head_dim, 128});
        parts.add(prefix + "attn_v.weight", {kv_heads * head_dim, 128});
        parts.add(prefix + "attn_output.weight", {128, heads * head_dim});
      }
    }));
    EXPECT_TRUE(spec || spec.error().code == Code::invalid);
    return spec ? std::string() : spec.error().message;
  };
  EXPECT_EQ(refusal(8, 4, 256), "");
  EXPECT_EQ(refusal(48, 1, 8), "");
  EXPECT_NE(refusal(8, 4, 12).find("heads are 12 wide"), std::string::npos);
  EXPECT_NE(refusal(8, 4, 264).find("a multiple of 8 up to 256"), std::string::npos);
  EXPECT_NE(refusal(49, 1, 8).find("49 heads share 1 KV heads, 49 each"), std::string::npos);
}

TEST(ModelSpec, RefusesMoreTokensThanTheVocabularyHasRows) {
  expect_refused(
      [](Parts& parts) {
        parts.set("llama.vocab_size", std::int64_t{282});
        parts.add("token_embd.weight", {282, 128});
      },
      "the tokenizer has 283 tokens (tokenizer.ggml.tokens), but llama.vocab_size says 282");
}

TEST(ModelSpec, RefusesMoreLayersThanTheFileCanHoldBeforeItListsThem) {
  expect_refused(
      [](Parts& parts) { parts.set("llama.block_count", std::int64_t{1000000}); },
      "the file holds 20 weights; a model of 1000000 layers (block_count) needs 9 for each");
}

TEST(ModelSpec, RefusesWeightsThatTheGraphWouldLeaveOut) {
  const auto extra = [](const std::string& name) {
    return [name](Parts& parts) { parts.add(name, {128}); };
  };
  expect_refused(extra("blk.0.attn_q.bias"),
                 "blk.0.attn_q.bias; models of architecture llama with "
                 "biases cannot be run");
  expect_refused(extra("blk.1.attn_qkv.weight"), "with a fused attn_qkv cannot be run");
  expect_refused(extra("blk.0.attn_q_norm.weight"), "with further norms cannot be run");
  expect_refused(extra("blk.2.attn_norm.weight"), "(of 2 layers)");
  expect_refused(extra("adapter"), "with further weights cannot be run");
}

}  // namespace
}  // namespace plimsoll
