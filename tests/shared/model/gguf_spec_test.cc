#include "shared/model/gguf_spec.h"

#include <gtest/gtest.h>

#include "shared/model/kv_shape.h"
#include "shared/model/weight_share.h"
#include "tools/tiny_model/gguf_writer.h"

namespace plimsoll {
namespace {

// A GGUF file of a family, in miniature.
class MadeFile {
 public:
  explicit MadeFile(const std::string& architecture) : architecture_(architecture) {
    writer_.add("general.architecture", architecture);
    set("block_count", 2);
    set("embedding_length", 64);
    set("context_length", 4096);
    set("vocab_size", 96);
    writer_.add(architecture + ".attention.layer_norm_rms_epsilon", 1e-6);
    weight("token_embd.weight", {96, 64});
    weight("output_norm.weight", {64});
  }
  void set(const std::string& key, std::int64_t value) {
    writer_.add(architecture_ + "." + key, value);
  }
  void set(const std::string& key, std::vector<bool> value) {
    writer_.add(architecture_ + "." + key, std::move(value));
  }
  void weight(const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t elements = 1;
    for (const std::int64_t size : shape) elements *= size;
    writer_.add_weight(name, DType::f32, std::move(shape),
                       std::vector<std::byte>(static_cast<std::size_t>(elements * 4)));
  }
  void layer_weight(const std::string& name, const std::vector<std::int64_t>& shape) {
    for (const char* layer : {"blk.0.", "blk.1."}) weight(layer + name, shape);
  }
  void dense_ffn() {
    set("feed_forward_length", 128);
    layer_weight("ffn_gate.weight", {128, 64});
    layer_weight("ffn_up.weight", {128, 64});
    layer_weight("ffn_down.weight", {64, 128});
  }
  void heads() {
    set("attention.head_count", 4);
    set("attention.head_count_kv", 2);
    layer_weight("attn_q.weight", {64, 64});
    layer_weight("attn_k.weight", {32, 64});
    layer_weight("attn_v.weight", {32, 64});
    layer_weight("attn_output.weight", {64, 64});
  }
  Result<ModelSpec> described() {
    bytes_ = writer_.file();
    const GgufFile file = TRY(GgufFile::parse(std::as_bytes(std::span(bytes_))));
    return describe_gguf(file, file.weights());
  }

 private:
  std::string architecture_;
  GgufWriter writer_;
  std::string bytes_;
};

TEST(GgufSpec, GemmaHasWindowsWithAPeriodOrMarks) {
  MadeFile by_default("gemma3");
  by_default.heads();
  by_default.dense_ffn();
  by_default.layer_weight("post_attention_norm.weight", {64});
  by_default.set("attention.sliding_window", 512);
  const auto none_full = by_default.described();
  ASSERT_TRUE(none_full) << none_full.error().message;
  EXPECT_EQ(none_full->window, 512);
  EXPECT_TRUE(none_full->full_layers.empty());
  EXPECT_EQ(none_full->rope_pairing, RopePairing::half_split);
  for (const WeightGroup& group : none_full->groups) EXPECT_NE(group.part, WeightPart::other);

  MadeFile marked("gemma3");
  marked.heads();
  marked.dense_ffn();
  marked.set("attention.sliding_window", 512);
  marked.set("attention.sliding_window_pattern", std::vector<bool>{true, false});
  const auto second_full = marked.described();
  ASSERT_TRUE(second_full) << second_full.error().message;
  EXPECT_EQ(second_full->full_layers, (std::vector<std::int64_t>{1}));

  MadeFile wrong("gemma3");
  wrong.heads();
  wrong.dense_ffn();
  wrong.set("attention.sliding_window", 512);
  wrong.set("attention.sliding_window_pattern", std::vector<bool>{true});
  EXPECT_FALSE(wrong.described());
}

TEST(GgufSpec, QwenHasStackedExpertsAndBiases) {
  MadeFile file("qwen3moe");
  file.heads();
  file.layer_weight("attn_q_norm.weight", {16});
  file.layer_weight("ffn_gate_inp.weight", {4, 64});
  file.layer_weight("ffn_gate_exps.weight", {4, 96, 64});
  file.layer_weight("ffn_up_exps.weight", {4, 96, 64});
  file.layer_weight("ffn_down_exps.weight", {4, 64, 96});
  file.set("expert_count", 4);
  file.set("expert_used_count", 2);
  file.set("expert_feed_forward_length", 96);
  const auto model = file.described();
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->experts.layers, 2);
  EXPECT_EQ(model->experts.ffn, 96);
  const auto too_many = plan_shards(*model, 4);
  ASSERT_FALSE(too_many);
  EXPECT_NE(too_many.error().message.find("each expert's feed-forward has 96 columns"),
            std::string::npos)
      << too_many.error().message;
  const auto two = plan_shards(*model, 2);
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(two->ranks[0].expert_ffn.size() + two->ranks[1].expert_ffn.size(), 96);
  EXPECT_EQ(two->ranks[0].ffn, (Range{0, 0}));
  const Bytes experts = 2 * 3 * 4 * 96 * 64 * 4;
  EXPECT_EQ(rank_share(*model, *two, 0, {}).part(WeightPart::experts) +
                rank_share(*model, *two, 1, {}).part(WeightPart::experts),
            experts);
}

TEST(GgufSpec, DeepSeekHasALatent) {
  MadeFile file("deepseek2");
  file.dense_ffn();
  file.set("attention.head_count", 4);
  file.set("attention.head_count_kv", 1);
  file.set("attention.q_lora_rank", 32);
  file.set("attention.kv_lora_rank", 48);
  file.set("attention.key_length", 56);
  file.set("attention.value_length", 48);
  file.set("attention.key_length_mla", 24);
  file.set("attention.value_length_mla", 16);
  file.set("rope.dimension_count", 8);
  file.layer_weight("attn_q_a.weight", {32, 64});
  file.layer_weight("attn_q_b.weight", {96, 32});
  file.layer_weight("attn_kv_a_mqa.weight", {56, 64});
  file.layer_weight("attn_k_b.weight", {4, 48, 16});
  file.layer_weight("attn_v_b.weight", {4, 16, 48});
  file.layer_weight("attn_output.weight", {64, 64});
  const auto model = file.described();
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE(model->latent);
  EXPECT_EQ(model->latent->nope_dim, 16);
  EXPECT_EQ(model->latent->value_dim, 16);
  // The file has the halves of kv_b already.
  EXPECT_FALSE(model->latent->has_kv_b);
  EXPECT_EQ(model->kv_bytes_per_token(1), 2 * 56 * 2);
  const auto shards = plan_shards(*model, 4);
  ASSERT_TRUE(shards) << shards.error().message;
  const RankShare share = rank_share(*model, *shards, 3, {});
  EXPECT_EQ(share.absorbed, 0);
  const Bytes whole = 2 * (32 * 64 + 56 * 64) * 4;
  const Bytes cut = 2 * (96 * 32 + 4 * 48 * 16 * 2 + 64 * 64) * 4 / 4;
  EXPECT_EQ(share.part(WeightPart::attention), whole + cut);
  for (const WeightGroup& group : model->groups) EXPECT_NE(group.part, WeightPart::other);
}

TEST(GgufSpec, UnknownArchitecturesAreNamedWithThoseThatAreKnown) {
  MadeFile file("gpt2");
  const auto model = file.described();
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("\"gpt2\""), std::string::npos);
  EXPECT_NE(model.error().message.find("known: deepseek2, gemma3, llama, qwen2"), std::string::npos)
      << model.error().message;
}

TEST(GgufSpec, ShapesThatContradictTheMetadataAreRefused) {
  MadeFile file("qwen3");
  file.heads();
  file.dense_ffn();
  file.weight("output.weight", {95, 64});
  const auto model = file.described();
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("has the shape [95, 64]; the metadata say [96, 64]"),
            std::string::npos)
      << model.error().message;
}

}  // namespace
}  // namespace plimsoll
