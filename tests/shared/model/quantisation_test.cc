#include "shared/model/quantisation.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

Result<Quantisation> parse(const std::string& text) {
  const Json json = *parse_json("{\"quantization_config\": " + text + "}");
  return read_quantisation(ConfigObject(json, ""));
}

constexpr const char* kPacked =
    R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"group_0":)"
    R"({"targets":["Linear"],"weights":{"num_bits":4,"type":"int","symmetric":true,)"
    R"("strategy":"group","group_size":32}}},"ignore":["lm_head","re:.*self_attn.*"]})";

// "weight_packed I32 [2048, 896]" for each tensor of a matrix.
std::vector<std::string> tensors_of(const std::string& config, std::int64_t rows,
                                    std::int64_t cols) {
  const auto quantisation = parse(config);
  EXPECT_TRUE(quantisation) << quantisation.error().message;
  const auto scheme = scheme_of(*quantisation, Stored::linear, "model.layers.1.mlp.up_proj");
  EXPECT_TRUE(scheme && *scheme != nullptr);
  std::vector<std::string> out;
  for (const MatrixTensor& tensor : matrix_tensors(**scheme, rows, cols, "BF16")) {
    std::string text = std::string(tensor.suffix) + " " + std::string(tensor.type);
    for (const std::int64_t size : tensor.shape) text += " " + std::to_string(size);
    out.push_back(text);
  }
  return out;
}

using Lines = std::vector<std::string>;

TEST(Quantisation, EachFormatHasItsTensors) {
  EXPECT_EQ(tensors_of(kPacked, 2048, 7168),
            (Lines{"weight_packed I32 2048 896", "weight_scale BF16 2048 224"}));
  EXPECT_EQ(tensors_of(R"({"quant_method":"fp8","weight_block_size":[128,128]})", 576, 7168),
            (Lines{"weight F8_E4M3 576 7168", "weight_scale_inv F32 5 56"}));
  EXPECT_EQ(tensors_of(R"({"quant_method":"fp8"})", 576, 7168),
            (Lines{"weight F8_E4M3 576 7168", "weight_scale F32 1"}));
  EXPECT_EQ(tensors_of(R"({"quant_method":"fbgemm_fp8"})", 576, 7168),
            (Lines{"weight F8_E4M3 576 7168", "weight_scale F32 576 1"}));
  EXPECT_EQ(
      tensors_of(R"({"quant_method":"gptq","bits":3,"group_size":128})", 4096, 1024),
      (Lines{"qweight I32 96 4096", "qzeros I32 8 384", "scales F16 8 4096", "g_idx I32 1024"}));
  EXPECT_EQ(tensors_of(R"({"quant_method":"awq","bits":4,"group_size":128})", 4096, 1024),
            (Lines{"qweight I32 1024 512", "qzeros I32 8 512", "scales F16 8 4096"}));
  EXPECT_EQ(
      tensors_of(R"({"quant_method":"gptq","bits":4,"group_size":-1})", 4096, 1024),
      (Lines{"qweight I32 128 4096", "qzeros I32 1 512", "scales F16 1 4096", "g_idx I32 1024"}));
  EXPECT_EQ(tensors_of(R"({"quant_method":"modelopt","quant_algo":"NVFP4"})", 64, 128),
            (Lines{"weight U8 64 64", "weight_scale F8_E4M3 64 8", "weight_scale_2 F32 1",
                   "input_scale F32 1"}));
}

TEST(Quantisation, ExceptionsStayPlain) {
  const auto packed = parse(kPacked);
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ(packed->words, "compressed-tensors INT4, groups of 32");
  EXPECT_EQ(*scheme_of(*packed, Stored::linear, "model.layers.1.self_attn.o_proj"), nullptr);
  EXPECT_EQ(*scheme_of(*packed, Stored::listed, "lm_head"), nullptr);
  EXPECT_EQ(*scheme_of(*packed, Stored::plain, "model.norm"), nullptr);
  EXPECT_NE(*scheme_of(*packed, Stored::listed, "model.layers.1.mlp.gate"), nullptr);
  // Others leave heads and routers alone, listed or not.
  const auto fp8 = parse(R"({"quant_method":"fp8","modules_to_not_convert":["mlp.down_proj"]})");
  EXPECT_EQ(*scheme_of(*fp8, Stored::listed, "lm_head"), nullptr);
  EXPECT_EQ(*scheme_of(*fp8, Stored::linear, "model.layers.3.mlp.down_proj"), nullptr);
}

TEST(Quantisation, UnknownMethodsAreKeptForWhoReadsHeaders) {
  const auto other = parse(R"({"quant_method":"bitsandbytes","load_in_4bit":true})");
  ASSERT_TRUE(other);
  EXPECT_NE(other->unknown.find("\"bitsandbytes\""), std::string::npos);
  EXPECT_TRUE(read_quantisation(ConfigObject(Json::object(), ""))->words.empty());
}

TEST(Quantisation, OddMembersAreRefused) {
  for (const char* text :
       {R"({"quant_method":"compressed-tensors"})", R"({"quant_method":7})",
        R"({"quant_method":"awq","bits":3})", R"({"quant_method":"awq"})",
        R"({"quant_method":"fp8","weight_block_size":[128]})",
        R"({"quant_method":"fp8","weight_block_size":[0,128]})",
        R"({"quant_method":"fp8","ignored_layers":[1]})",
        R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"]}}})"}) {
    EXPECT_FALSE(parse(text)) << text;
  }
}

}  // namespace
}  // namespace plimsoll
