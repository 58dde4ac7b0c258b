#include "shared/model/vision.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::int64_t parameters(const VisionConfig& config, std::string_view prefix) {
  std::int64_t sum = 0;
  for (const CountedTensor& tensor : vision_tensors(config)) {
    if (!tensor.name.starts_with(prefix)) continue;
    std::int64_t elements = tensor.count;
    for (const std::int64_t size : tensor.shape) elements *= size;
    sum += elements;
  }
  return sum;
}

Json kimi_vision() {
  return *parse_json(
      R"({"patch_size":14,"vt_hidden_size":1152,"vt_intermediate_size":4304,)"
      R"("vt_num_attention_heads":16,"vt_num_hidden_layers":27,"init_pos_emb_height":64,)"
      R"("init_pos_emb_width":64,"merge_kernel_size":[2,2]})");
}

TEST(Vision, KimisTowerAndProjectorHaveTheKnownSizes) {
  const Json json = kimi_vision();
  const auto config = read_vision("kimi_k25", ConfigObject(json, "vision_config."), 7168);
  ASSERT_TRUE(config && *config);
  EXPECT_EQ((*config)->tower.kind, "moonvit");
  EXPECT_EQ(parameters(**config, "vision_tower."), 416'866'032);
  EXPECT_EQ(parameters(**config, "mm_projector."), 54'277'888);
}

TEST(Vision, AnUnknownTowerIsNoMistake) {
  const Json json = kimi_vision();
  const auto config = read_vision("qwen9_vl", ConfigObject(json, ""), 7168);
  ASSERT_TRUE(config);
  EXPECT_FALSE(config->has_value());
}

TEST(Vision, OddMembersAreRefused) {
  for (const auto& [key, value] : std::vector<std::pair<const char*, Json>>{
           {"vt_hidden_size", 1153},
           {"vt_hidden_size", Json()},
           {"patch_size", 0},
           {"init_pos_emb_width", 1'000'000},
           {"merge_kernel_size", Json::array({2})},
           {"merge_kernel_size", Json::array({2, 100'000})}}) {
    Json json = kimi_vision();
    json.set(key, value);
    EXPECT_FALSE(read_vision("kimi_k25", ConfigObject(json, "vision_config."), 7168)) << key;
  }
}

TEST(Vision, LinearsAreCutByHeadsAndFeedForward) {
  const VisionTower tower{
      .kind = "moonvit", .layers = 27, .hidden = 1152, .ffn = 4304, .heads = 16};
  const std::string block = "vision_tower.encoder.blocks.3.";
  EXPECT_EQ(vision_cut(tower, block + "wqkv.weight", {3456, 1152}),
            (Cut{CutBy::vision_heads, false, 216, 16, 1}));
  EXPECT_EQ(vision_cut(tower, block + "wqkv.bias", {3456}),
            (Cut{CutBy::vision_heads, false, 216, 16, 1}));
  EXPECT_EQ(vision_cut(tower, block + "wo.weight", {1152, 1152}),
            (Cut{CutBy::vision_heads, true, 72, 16, 1}));
  EXPECT_EQ(vision_cut(tower, block + "wo.bias", {1152}), Cut{});
  EXPECT_EQ(vision_cut(tower, block + "mlp.fc0.weight", {4304, 1152}),
            (Cut{CutBy::vision_ffn, false, 1, 4304, 1}));
  EXPECT_EQ(vision_cut(tower, block + "mlp.fc1.weight", {1152, 4304}),
            (Cut{CutBy::vision_ffn, true, 1, 4304, 1}));
  EXPECT_EQ(vision_cut(tower, block + "mlp.fc1.bias", {1152}), Cut{});
  EXPECT_EQ(vision_cut(tower, block + "norm0.weight", {1152}), Cut{});
  EXPECT_EQ(vision_cut(tower, "vision_tower.patch_embed.pos_emb.weight", {4096, 1152}), Cut{});
}

}  // namespace
}  // namespace plimsoll
