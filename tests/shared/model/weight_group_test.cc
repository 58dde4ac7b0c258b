#include "shared/model/weight_group.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(WeightGroup, EveryPartHasItsOwnName) {
  std::set<std::string> names;
  const int parts = static_cast<int>(WeightPart::file_only) + 1;
  for (int part = 0; part < parts; ++part) names.insert(part_name(static_cast<WeightPart>(part)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(parts));
}

TEST(WeightGroup, CountsAllOfItsWeights) {
  const WeightGroup group{.name = "model.layers.*.mlp.experts.*.up_proj.weight_scale",
                          .count = 60 * 384,
                          .type = "BF16",
                          .shape = {2048, 224},
                          .bytes = 2048 * 224 * 2,
                          .part = WeightPart::experts,
                          .cut = {}};
  EXPECT_EQ(group.bytes_of_all(), 23'040 * 917'504LL);
}

}  // namespace
}  // namespace plimsoll
