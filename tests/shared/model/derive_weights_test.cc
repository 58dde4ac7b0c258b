#include "shared/model/derive_weights.h"

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

HfConfig golden(const std::string& model) {
  const auto file = parse_json(read_test_file(golden_path("models/" + model + ".json")));
  auto config = parse_hf_config(*file->find("config"));
  EXPECT_TRUE(config) << config.error().message;
  return std::move(*config);
}

const WeightGroup* find(const std::vector<WeightGroup>& groups, std::string_view name) {
  for (const WeightGroup& group : groups) {
    if (group.name == name) return &group;
  }
  return nullptr;
}

TEST(DeriveWeights, ExpertsAreCountedNotListed) {
  const auto groups = derive_weights(golden("kimi-k2.5"));
  ASSERT_TRUE(groups) << groups.error().message;
  const WeightGroup* up =
      find(*groups, "language_model.model.layers.*.mlp.experts.*.up_proj.weight_packed");
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->count, 60 * 384);
  EXPECT_EQ(up->type, "I32");
  EXPECT_EQ(up->shape, (std::vector<std::int64_t>{2048, 896}));
  EXPECT_LT(groups->size(), 60U);
}

TEST(DeriveWeights, WhatTheIgnoreListNamesStaysPlain) {
  const auto groups = derive_weights(golden("kimi-k2.5"));
  ASSERT_TRUE(groups);
  for (const char* name :
       {"lm_head.weight", "language_model.model.layers.*.self_attn.q_b_proj.weight",
        "language_model.model.layers.*.mlp.shared_experts.up_proj.weight",
        "language_model.model.layers.*.mlp.gate_proj.weight"}) {
    const WeightGroup* group = find(*groups, name);
    ASSERT_NE(group, nullptr) << name;
    EXPECT_EQ(group->type, "BF16") << name;
  }
}

TEST(DeriveWeights, ADraftingLayerIsAPartOfItsOwn) {
  const auto groups = derive_weights(golden("deepseek-r1"));
  ASSERT_TRUE(groups);
  std::int64_t experts = 0;
  for (const WeightGroup& group : *groups) {
    if (group.part == WeightPart::mtp && group.name.ends_with("experts.*.up_proj.weight")) {
      experts += group.count;
    }
  }
  EXPECT_EQ(experts, 256);
}

TEST(DeriveWeights, WhatOnlyHeadersCanTellIsRefused) {
  HfConfig config = golden("llama-3.1-8b");
  config.quantisation.unknown = "config.json's quantization_config.quant_method is \"magic\"";
  const auto unknown = derive_weights(config);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("\"magic\", from which the weights cannot be derived; "
                                         "with the headers of the safetensors files"),
            std::string::npos);
  HfConfig vision = golden("llama-3.1-8b");
  vision.has_unknown_vision = true;
  EXPECT_FALSE(derive_weights(vision));
}

TEST(DeriveWeights, SizesBeyondAnyMachineAreRefused) {
  HfConfig config = golden("kimi-k2.5");
  config.spec.experts.count = 1 << 20;
  config.spec.experts.ffn = 1 << 20;
  config.spec.hidden = 1 << 20;
  config.quantisation = {};
  const auto groups = derive_weights(config);
  ASSERT_FALSE(groups);
  EXPECT_NE(groups.error().message.find("is a size wrong?"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
