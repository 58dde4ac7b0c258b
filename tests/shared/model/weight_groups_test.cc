#include "shared/model/weight_groups.h"

#include <gtest/gtest.h>

#include "tests/support/model_specs.h"

namespace plimsoll {
namespace {

// Two layers with 4 experts of 96 columns each, INT4 in groups of 32.
ModelSpec small_experts() {
  ModelSpec model;
  model.layers = 2;
  model.hidden = 128;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 32;
  model.vocab = 512;
  model.experts = {.layers = 2, .count = 4, .used = 2, .ffn = 96, .shared_ffn = 0};
  return model;
}

WeightGroup group_of(const ModelSpec& model, Tensor tensor) {
  WeightGroups groups(model);
  const Status added = groups.add_hf(tensor);
  EXPECT_TRUE(added) << added.error().message;
  return groups.take().at(0);
}

std::string refusal(const ModelSpec& model, const Tensor& tensor) {
  WeightGroups groups(model);
  const Status added = groups.add_hf(tensor);
  return added ? std::string() : added.error().message;
}

TEST(WeightGroups, StarsReplaceWholeNumbers) {
  EXPECT_EQ(with_stars("model.layers.3.mlp.experts.17.up_proj.weight"),
            "model.layers.*.mlp.experts.*.up_proj.weight");
  EXPECT_EQ(with_stars("lm_head.weight2"), "lm_head.weight2");
  EXPECT_EQ(with_stars(".."), "..");
}

TEST(WeightGroups, TensorsThatAreAlikeAreCounted) {
  const ModelSpec model = small_experts();
  WeightGroups groups(model);
  for (const char* layer : {"0", "1"}) {
    for (const char* expert : {"0", "1", "2", "3"}) {
      const std::string name = std::string("model.layers.") + layer + ".mlp.experts." + expert;
      ASSERT_TRUE(groups.add_hf({name + ".up_proj.weight", "BF16", {96, 128}, 24'576}));
    }
  }
  const auto all = groups.take();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].count, 8);
  EXPECT_EQ(all[0].part, WeightPart::experts);
  EXPECT_EQ(all[0].cut, (Cut{CutBy::expert_ffn, false, 1, 96, 1}));
}

TEST(WeightGroups, PackedColumnsAreCutByWordsAndScalesByGroups) {
  const ModelSpec model = small_experts();
  const std::string down = "model.layers.0.mlp.experts.0.down_proj";
  EXPECT_EQ(group_of(model, {down + ".weight_packed", "I32", {128, 12}, 6144}).cut,
            (Cut{CutBy::expert_ffn, true, 1, 96, 8}));
  EXPECT_EQ(group_of(model, {down + ".weight_scale", "BF16", {128, 3}, 768}).cut,
            (Cut{CutBy::expert_ffn, true, 1, 96, 32}));
  EXPECT_EQ(group_of(model, {down + ".weight_shape", "I32", {2}, 8}).part, WeightPart::file_only);
  // AWQ is stored the other way round.
  EXPECT_EQ(group_of(model, {down + ".qweight", "I32", {96, 16}, 6144}).cut,
            (Cut{CutBy::expert_ffn, true, 1, 96, 1}));
  EXPECT_EQ(group_of(model, {down + ".scales", "F16", {3, 128}, 768}).cut,
            (Cut{CutBy::expert_ffn, true, 1, 96, 32}));
}

TEST(WeightGroups, ZeroPointsArePackedAlongRowsAndHaveOneAGroupOfColumns) {
  ModelSpec model = small_experts();
  model.experts = {};
  model.ffn = 512;
  const std::string down = "model.layers.0.mlp.down_proj";  // [128, 512]
  EXPECT_EQ(group_of(model, {down + ".qzeros", "I32", {4, 16}, 256}).cut,
            (Cut{CutBy::ffn, true, 1, 512, 128}));
  EXPECT_EQ(group_of(model, {down + ".weight_zero_point", "I32", {16, 4}, 256}).cut,
            (Cut{CutBy::ffn, true, 1, 512, 128}));
  EXPECT_EQ(group_of(model, {down + ".qzeros", "I32", {1, 16}, 64}).cut, Cut{});
  EXPECT_NE(refusal(model, {down + ".qzeros", "I32", {4, 3}, 48}), "");  // 43 rows to a word
}

TEST(WeightGroups, FourBitsOfBitsandbytesLieFlatAndAreCutInProportion) {
  const ModelSpec model = small_experts();
  const std::string q = "model.layers.0.self_attn.q_proj";  // [128, 128]
  const std::string o = "model.layers.0.self_attn.o_proj";
  const Cut rows{CutBy::heads, false, 32, 4, 1};
  const Cut cols{CutBy::heads, true, 32, 4, 1};
  EXPECT_EQ(group_of(model, {q + ".weight", "U8", {8192, 1}, 8192}).cut, rows);
  EXPECT_EQ(group_of(model, {o + ".weight", "U8", {8192, 1}, 8192}).cut, cols);
  EXPECT_EQ(group_of(model, {q + ".weight.absmax", "U8", {256}, 256}).cut, rows);
  for (const char* of_all :
       {".weight.quant_map", ".weight.nested_absmax", ".weight.nested_quant_map"}) {
    const WeightGroup group = group_of(model, {q + of_all, "F32", {16}, 64});
    EXPECT_EQ(group.part, WeightPart::attention) << of_all;
    EXPECT_EQ(group.cut, Cut{}) << of_all;
  }
  EXPECT_EQ(group_of(model, {q + ".weight.quant_state.bitsandbytes__nf4", "U8", {80}, 80}).part,
            WeightPart::file_only);
  EXPECT_EQ(group_of(model, {q + ".SCB", "F32", {128}, 512}).cut, rows);
  EXPECT_NE(refusal(model, {q + ".weight", "U8", {8191, 1}, 8191}), "");
}

TEST(WeightGroups, BiasesFollowRowsAndStayWholeBesideCutColumns) {
  const ModelSpec model = small_experts();
  const std::string attn = "model.layers.0.self_attn.";
  EXPECT_EQ(group_of(model, {attn + "q_proj.bias", "BF16", {128}, 256}).cut,
            (Cut{CutBy::heads, false, 32, 4, 1}));
  EXPECT_EQ(group_of(model, {attn + "o_proj.bias", "BF16", {128}, 256}).cut, Cut{});
  EXPECT_EQ(group_of(model, {attn + "k_proj.weight_scale", "F32", {1}, 4}).cut, Cut{});
}

TEST(WeightGroups, WrappersOfTheTextModelMakeNoDifference) {
  const ModelSpec model = small_experts();
  for (const char* name : {"model.embed_tokens.weight", "language_model.model.embed_tokens.weight",
                           "model.language_model.embed_tokens.weight"}) {
    const WeightGroup group = group_of(model, {name, "BF16", {512, 128}, 131'072});
    EXPECT_EQ(group.part, WeightPart::embedding) << name;
    EXPECT_EQ(group.cut, (Cut{CutBy::vocab, false, 1, 512, 1})) << name;
  }
  EXPECT_EQ(group_of(model, {"language_model.lm_head.weight", "BF16", {512, 128}, 131'072}).part,
            WeightPart::head);
  EXPECT_EQ(
      group_of(model, {"language_model.model.layers.1.input_layernorm.weight", "BF16", {128}, 256})
          .part,
      WeightPart::norms);
}

TEST(WeightGroups, UnknownWeightsAreCountedAndReplicated) {
  const ModelSpec model = small_experts();
  for (const char* name : {"model.layers.0.self_attn.indexer.wk.weight", "adapter", "a.b.c",
                           "model.layers.7.self_attn.q_proj.weight"}) {
    const WeightGroup group = group_of(model, {name, "BF16", {128, 128}, 32'768});
    EXPECT_EQ(group.part, WeightPart::other) << name;
    EXPECT_EQ(group.cut, Cut{}) << name;
    EXPECT_EQ(group.bytes_of_all(), 32'768);
  }
}

TEST(WeightGroups, ShapesThatContradictTheConfigAreRefused) {
  const ModelSpec model = small_experts();
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_EQ(refusal(model, {name, "BF16", {64, 128}, 16'384}),
            "the weight model.layers.0.self_attn.q_proj.weight has the shape [64, 128]; "
            "config.json says [128, 128]");
  EXPECT_NE(refusal(model, {name, "BF16", {128, 127}, 32'512}), "");
  EXPECT_NE(refusal(model, {name, "BF16", {0, 128}, 0}), "");
  EXPECT_NE(refusal(model, {name, "BF16", {256, 128}, 65'536}), "");
}

TEST(WeightGroups, OfAGgufFileHaveAllItsBytes) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  EXPECT_EQ(model.weight_bytes(), model.weights.bytes());
  EXPECT_LT(model.groups.size(), 15U);
  for (const WeightGroup& group : model.groups) EXPECT_NE(group.part, WeightPart::other);
}

}  // namespace
}  // namespace plimsoll
