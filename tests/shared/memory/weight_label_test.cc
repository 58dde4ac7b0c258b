#include "shared/memory/weight_label.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

TEST(WeightLabel, IsAnotherForAnotherFileShardOrSize) {
  const TempFolder folder;
  const auto model = folder.path() / "model.gguf";
  std::ofstream(model) << "one";
  RankPlan plan;
  plan.shard.heads = {0, 4};
  plan.rows.push_back({.term = Term::weights, .bytes = 100, .formula = {}});
  const std::string label = *weight_label(model, plan);
  EXPECT_EQ(*weight_label(model, plan), label);

  RankPlan other = plan;
  other.shard.vocab.end = 1;
  EXPECT_NE(*weight_label(model, other), label);
  other = plan;
  other.rows[0].bytes = 101;
  EXPECT_NE(*weight_label(model, other), label);
  std::ofstream(model) << "another";
  EXPECT_NE(*weight_label(model, plan), label);
}

TEST(WeightLabel, OfNoFileSaysWhich) {
  const auto label = weight_label("/nowhere/model.gguf", {});
  ASSERT_FALSE(label);
  EXPECT_EQ(label.error().code, Code::not_found);
  EXPECT_NE(label.error().message.find("/nowhere/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
