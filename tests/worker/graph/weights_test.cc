#include "worker/graph/weights.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

ModelSpec twelve_layers() {
  ModelSpec spec;
  spec.layers = 12;
  return spec;
}

TEST(Weights, FindsThePlaceOfEachName) {
  ModelWeights weights(twelve_layers());
  EXPECT_EQ(weights.matrix("head"), &weights.head);
  EXPECT_EQ(weights.matrix("embedding"), &weights.embedding);
  EXPECT_EQ(weights.matrix("blk.0.qkv"), &weights.layers[0].qkv);
  EXPECT_EQ(weights.matrix("blk.11.ffn_down"), &weights.layers[11].ffn_down);
  EXPECT_EQ(weights.matrix("blk.3.attn_output"), &weights.layers[3].attn_output);
  EXPECT_EQ(weights.matrix("blk.3.gate_up"), &weights.layers[3].gate_up);
  EXPECT_EQ(weights.vector("output_norm.weight"), &weights.output_norm);
  EXPECT_EQ(weights.vector("rope_freqs.weight"), &weights.rope_freqs);
  EXPECT_EQ(weights.vector("blk.10.attn_norm.weight"), &weights.layers[10].attn_norm);
  EXPECT_EQ(weights.vector("blk.10.ffn_norm.weight"), &weights.layers[10].ffn_norm);
}

TEST(Weights, HasNoPlaceForOtherNames) {
  ModelWeights weights(twelve_layers());
  for (const char* name : {"", "blk", "blk.", "blk.12.qkv", "blk.x.qkv", "blk.1", "blk.1.",
                           "blk.-1.qkv", "blk.1.router", "blk.99999999999999999999.qkv"}) {
    EXPECT_EQ(weights.matrix(name), nullptr) << name;
    EXPECT_EQ(weights.vector(name), nullptr) << name;
  }
}

}  // namespace
}  // namespace plimsoll
