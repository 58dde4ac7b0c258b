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

// Each scheme that config.json can name gives tensors that are then read as those of its matrices,
// whatever the size of its groups.
TEST(DeriveWeights, EveryGroupSizeOfEverySchemeIsTaken) {
  constexpr Bytes kMatrices = 32LL * 218'103'808;  // elements of Llama-3.1-8B that are quantised
  constexpr Bytes kPlain = 2LL * 128'256 * 4096 * 2 + 65LL * 4096 * 2;
  const std::string ct =
      R"({"quant_method":"compressed-tensors","format":"pack-quantized","ignore":["lm_head"],)"
      R"("config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"strategy":)";
  for (const std::int64_t group : {32, 64, 128, 256}) {
    const std::string size = std::to_string(group);
    const Bytes groups = kMatrices / group;
    const struct {
      std::string json;
      Bytes bytes;  // of all matrices
    } cases[] = {
        {R"({"quant_method":"awq","bits":4,"group_size":)" + size + "}",
         kMatrices / 2 + groups * 2 + groups / 2},
        {R"({"quant_method":"gptq","bits":8,"group_size":)" + size + "}",
         kMatrices + groups * 3 + 32LL * (6 * 4096 + 14'336) * 4},  // g_idx: of each input
        {R"({"quant_method":"gptq","bits":3,"group_size":)" + size + "}",
         kMatrices * 3 / 8 + groups * 2 + groups * 3 / 8 + 32LL * (6 * 4096 + 14'336) * 4},
        {ct + R"("group","group_size":)" + size + R"(,"symmetric":false}}}})",
         kMatrices / 2 + groups * 2 + groups / 2},
    };
    for (const auto& one : cases) {
      SCOPED_TRACE(one.json);
      HfConfig config = golden("llama-3.1-8b");
      const Json json = *parse_json(R"({"quantization_config":)" + one.json + "}");
      auto quantisation = read_quantisation(ConfigObject(json, "config.json's "));
      ASSERT_TRUE(quantisation) << quantisation.error().message;
      config.quantisation = std::move(*quantisation);
      const auto derived = derive_weights(config);
      ASSERT_TRUE(derived) << derived.error().message;
      Bytes sum = 0;
      for (const WeightGroup& weight : *derived) {
        const bool is_loaded = weight.part != WeightPart::file_only;
        sum += is_loaded ? weight.bytes_of_all() : 0;
      }
      EXPECT_EQ(sum, one.bytes + kPlain);
    }
  }
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
