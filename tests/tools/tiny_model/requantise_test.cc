#include "tools/tiny_model/requantise.h"

#include <gtest/gtest.h>

#include "shared/model/model_spec.h"
#include "tools/tiny_model/tiny_model.h"

namespace plimsoll {
namespace {

GgufFile parsed(const std::string& bytes) {
  return std::move(GgufFile::parse(std::as_bytes(std::span(bytes))).value());
}

TEST(Requantise, ChangesTheTypeOfMatricesAndNothingElse) {
  const std::string bytes = make_tiny_model({.type = DType::q8_0}).value();
  const GgufFile before = parsed(bytes);
  const auto made = requantise(before, DType::q4_k);
  ASSERT_TRUE(made) << made.error().message;
  const GgufFile after = parsed(*made);
  EXPECT_TRUE(read_model_spec(after));
  ASSERT_EQ(after.weights().all().size(), before.weights().all().size());
  const auto type_of = [&](const char* name) { return after.weights().find(name)->dtype; };
  EXPECT_EQ(type_of("token_embd.weight"), DType::q8_0);
  EXPECT_EQ(type_of("output_norm.weight"), DType::f32);
  EXPECT_EQ(type_of("blk.1.attn_q.weight"), DType::q5_0);  // 128 columns
  EXPECT_EQ(type_of("blk.1.ffn_down.weight"), DType::q4_k);
}

TEST(Requantise, TheSameTypeGivesTheSameBlocks) {
  const std::string bytes = make_tiny_model({.type = DType::q8_0}).value();
  const GgufFile before = parsed(bytes);
  const auto made = requantise(before, DType::q8_0);
  ASSERT_TRUE(made) << made.error().message;
  const GgufFile after = parsed(*made);
  for (const char* name :
       {"blk.0.attn_k.weight", "blk.1.ffn_up.weight", "blk.0.attn_norm.weight"}) {
    const auto a = before.bytes_of(*before.weights().find(name));
    const auto b = after.bytes_of(*after.weights().find(name));
    EXPECT_TRUE(std::ranges::equal(a, b)) << name;
  }
}

TEST(KeepLayers, AModelOfItsFirstLayersHasTheirBlocks) {
  const std::string bytes = make_tiny_model({.type = DType::q8_0, .layers = 3}).value();
  const GgufFile before = parsed(bytes);
  const auto made = keep_layers(before, 2);
  ASSERT_TRUE(made) << made.error().message;
  const GgufFile after = parsed(*made);
  const auto spec = read_model_spec(after);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->layers, 2);
  EXPECT_EQ(after.weights().find("blk.2.attn_q.weight"), nullptr);
  for (const char* name : {"token_embd.weight", "blk.1.ffn_up.weight"}) {
    const auto a = before.bytes_of(*before.weights().find(name));
    const auto b = after.bytes_of(*after.weights().find(name));
    EXPECT_TRUE(std::ranges::equal(a, b)) << name;
  }
  EXPECT_FALSE(keep_layers(before, 4));
  EXPECT_FALSE(keep_layers(before, 0));
}

}  // namespace
}  // namespace plimsoll
