#include "shared/model/family.h"

#include <set>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Family, IsFoundByConfigAndByGgufName) {
  ASSERT_NE(find_family("kimi_k2"), nullptr);
  EXPECT_EQ(find_family("kimi_k2")->architecture, "deepseek2");
  EXPECT_NE(find_family("kimi_k2")->features & feature::kLatent, 0U);
  EXPECT_EQ(find_gguf_family("gemma3")->window, WindowRule::pattern);
  EXPECT_EQ(find_family("gpt2"), nullptr);
  EXPECT_EQ(find_gguf_family(""), nullptr);
}

TEST(Family, EveryModelTypeIsThereOnce) {
  std::set<std::string_view> names;
  for (const Family& family : families()) {
    EXPECT_TRUE(names.insert(family.model_type).second) << family.model_type;
    EXPECT_FALSE(family.architecture.empty()) << family.model_type;
  }
}

}  // namespace
}  // namespace plimsoll
