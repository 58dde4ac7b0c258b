#include "shared/model/hf_config.h"

#include <functional>

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

Json golden_config(const std::string& model) {
  const auto file = parse_json(read_test_file(golden_path("models/" + model + ".json")));
  return file ? *file->find("config") : Json();
}

HfConfig parsed(const Json& json) {
  auto config = parse_hf_config(json);
  EXPECT_TRUE(config) << config.error().message;
  return config ? std::move(*config) : HfConfig{};
}

void expect_refused(const std::string& model, const std::function<void(Json&)>& change,
                    std::string_view words) {
  Json json = golden_config(model);
  change(json);
  const auto config = parse_hf_config(json);
  ASSERT_FALSE(config) << "expected a refusal with: " << words;
  EXPECT_NE(config.error().message.find(words), std::string::npos)
      << "expected: " << words << "\nmessage:  " << config.error().message;
}

TEST(HfConfig, ReadsLatentAttentionAndExpertsThroughAWrapper) {
  const HfConfig config = parsed(golden_config("kimi-k2.5"));
  const ModelSpec& spec = config.spec;
  EXPECT_EQ(spec.architecture, "deepseek2");
  EXPECT_EQ(spec.layers, 61);
  EXPECT_EQ(spec.heads, 64);
  EXPECT_EQ(spec.kv_heads, 1);
  EXPECT_EQ(spec.head_dim, 192);
  ASSERT_TRUE(spec.latent);
  EXPECT_EQ(spec.latent->kv_rank, 512);
  EXPECT_EQ(spec.latent->rope_dim, 64);
  EXPECT_EQ(spec.experts.count, 384);
  EXPECT_EQ(spec.experts.layers, 60);
  EXPECT_EQ(spec.experts.shared_ffn, 2048);
  EXPECT_FALSE(config.has_experts[0]);
  EXPECT_TRUE(config.has_experts[1]);
  EXPECT_EQ(spec.context_length, 262'144);
  EXPECT_EQ(spec.quantisation, "compressed-tensors INT4, groups of 32");
  EXPECT_EQ(config.prefix, "language_model.model.");
  ASSERT_TRUE(spec.vision);
  EXPECT_EQ(spec.vision->layers, 27);
  EXPECT_FALSE(spec.tied_head);
}

TEST(HfConfig, WindowsFollowTheFamily) {
  const ModelSpec gemma = parsed(golden_config("gemma-3-1b-it")).spec;
  EXPECT_EQ(gemma.window, 512);
  EXPECT_EQ(gemma.full_layers, (std::vector<std::int64_t>{5, 11, 17, 23}));
  EXPECT_TRUE(gemma.tied_head);
  const ModelSpec mistral = parsed(golden_config("mistral-7b-v0.1")).spec;
  EXPECT_EQ(mistral.window, 4096);
  EXPECT_TRUE(mistral.full_layers.empty());
  // Released Qwen2.5 names a window and switches it off.
  EXPECT_EQ(parsed(golden_config("qwen2.5-7b")).spec.window, 0);
  Json qwen = golden_config("qwen2.5-7b");
  qwen.set("use_sliding_window", true);
  qwen.set("max_window_layers", 26);
  EXPECT_EQ(parsed(qwen).spec.window, 131'072);
  EXPECT_EQ(parsed(qwen).spec.full_layers.size(), 26U);
}

TEST(HfConfig, LayerTypesSayWhichLayersAreFull) {
  Json json = golden_config("gemma-3-1b-it");
  Json types = Json::array();
  for (int layer = 0; layer < 26; ++layer) {
    types.push(layer == 3 ? "full_attention" : "sliding_attention");
  }
  json.set("layer_types", types);
  EXPECT_EQ(parsed(json).spec.full_layers, (std::vector<std::int64_t>{3}));
  types.push("full_attention");
  json.set("layer_types", types);
  EXPECT_FALSE(parse_hf_config(json));
}

TEST(HfConfig, DefaultsOfTheCodeAreSaidToBeAssumed) {
  const ModelSpec gemma = parsed(golden_config("gemma-3-4b-it")).spec;
  EXPECT_EQ(gemma.heads, 8);
  EXPECT_EQ(gemma.kv_heads, 4);
  EXPECT_EQ(gemma.vocab, 262'208);
  ASSERT_FALSE(gemma.assumptions.empty());
  EXPECT_EQ(gemma.assumptions[0],
            "config.json's text_config.num_attention_heads is 8: the default of model_type "
            "gemma3_text");
}

TEST(HfConfig, TypesAreReadOrAssumed) {
  Json json = golden_config("llama-3.1-8b");
  EXPECT_EQ(parsed(json).plain_type, "BF16");
  json.set("torch_dtype", "torch.float16");
  EXPECT_EQ(parsed(json).plain_type, "F16");
  json.set("torch_dtype", Json());
  const HfConfig assumed = parsed(json);
  EXPECT_EQ(assumed.plain_type, "BF16");
  EXPECT_NE(assumed.spec.assumptions.back().find("has no dtype"), std::string::npos);
  json.set("dtype", "int3");
  EXPECT_FALSE(parse_hf_config(json));
}

TEST(HfConfig, BiasesAndDenseLayersFollowTheirSwitches) {
  Json llama = golden_config("llama-3.1-8b");
  llama.set("attention_bias", true);
  EXPECT_NE(parsed(llama).features & feature::kOutputBias, 0U);
  Json qwen = golden_config("qwen3-30b-a3b");
  qwen.set("decoder_sparse_step", 2);
  qwen.set("mlp_only_layers", Json::array({1}));
  const HfConfig config = parsed(qwen);
  EXPECT_EQ(config.spec.experts.layers, 23);
  EXPECT_FALSE(config.has_experts[0]);
  EXPECT_FALSE(config.has_experts[1]);
  EXPECT_TRUE(config.has_experts[3]);
}

TEST(HfConfig, MistakesAreNamed) {
  const auto set = [](const char* key, Json value) {
    return [key, value](Json& json) { json.set(key, value); };
  };
  expect_refused("llama-3.1-8b", set("model_type", "gpt_bigcode"),
                 "\"gpt_bigcode\", a kind of model that is not known to us; known: llama, mistral");
  expect_refused("llama-3.1-8b", set("hidden_size", Json()), "hidden_size is missing");
  expect_refused("llama-3.1-8b", set("num_hidden_layers", 1'000'000), "expected 1 to 4096");
  expect_refused("llama-3.1-8b", set("num_key_value_heads", 5), "a divisor of the 32 heads");
  expect_refused("llama-3.1-8b", set("num_attention_heads", 24), "do not divide over 24 heads");
  expect_refused("llama-3.1-8b", set("text_config", 3), "text_config is of type integer");
  expect_refused("deepseek-r1", set("kv_lora_rank", Json()), "kv_lora_rank is missing");
  expect_refused("qwen3-30b-a3b", set("moe_intermediate_size", "big"), "expected an integer");
  EXPECT_FALSE(parse_hf_config(Json::array()));
  EXPECT_FALSE(parse_hf_config(std::string_view("{")));
}

TEST(HfConfig, AnUnknownTowerIsLeftToTheHeaders) {
  Json json = golden_config("mistral-small-3.1-24b");
  json.set("model_type", "pixtral_next");
  const HfConfig config = parsed(json);
  EXPECT_TRUE(config.has_unknown_vision);
  EXPECT_FALSE(config.vision);
}

TEST(HfConfig, RotationsThatAreStretchedReachFurther) {
  const auto length = [](const std::string& more) {
    const auto config = parse_hf_config(std::string_view(
        R"({"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,)"
        R"("num_attention_heads":4,"vocab_size":256,"max_position_embeddings":40960)" +
        more + "}"));
    EXPECT_TRUE(config) << config.error().message;
    return config ? config->spec.context_length : 0;
  };
  EXPECT_EQ(length(""), 40'960);
  EXPECT_EQ(length(R"(,"rope_scaling":{"rope_type":"yarn","factor":4.0,)"
                   R"("original_max_position_embeddings":32768})"),
            131'072);
  EXPECT_EQ(length(R"(,"rope_parameters":{"type":"linear","factor":2.0})"), 81'920);
  EXPECT_EQ(length(R"(,"rope_scaling":{"rope_type":"llama3","factor":8.0})"), 40'960);
  // DeepSeek's config has the product already.
  EXPECT_EQ(length(R"(,"rope_scaling":{"type":"yarn","factor":10,)"
                   R"("original_max_position_embeddings":4096})"),
            40'960);
}

}  // namespace
}  // namespace plimsoll
