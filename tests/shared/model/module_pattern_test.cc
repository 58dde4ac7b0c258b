#include "shared/model/module_pattern.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

bool matches(const char* pattern, PatternSyntax syntax, const char* module) {
  const auto parsed = ModulePattern::parse(pattern, syntax);
  EXPECT_TRUE(parsed) << parsed.error().message;
  const auto found = parsed->matches(module);
  EXPECT_TRUE(found) << found.error().message;
  return found && *found;
}

TEST(ModulePattern, ExpressionsMatchFromTheStart) {
  constexpr auto kSyntax = PatternSyntax::compressed_tensors;
  EXPECT_TRUE(matches("re:.*self_attn.*", kSyntax, "model.layers.3.self_attn.q_proj"));
  EXPECT_FALSE(matches("re:self_attn.*", kSyntax, "model.layers.3.self_attn.q_proj"));
  // A prefix is enough, as in Python's re.match.
  EXPECT_TRUE(matches("re:model.layers.3", kSyntax, "model.layers.3.self_attn.q_proj"));
  constexpr const char* kDense = "re:.*mlp\\.(gate|up|gate_up|down)_proj.*";
  EXPECT_TRUE(matches(kDense, kSyntax, "model.layers.0.mlp.gate_proj"));
  EXPECT_FALSE(matches(kDense, kSyntax, "model.layers.1.mlp.experts.0.gate_proj"));
}

TEST(ModulePattern, NamesMatchWhole) {
  EXPECT_TRUE(matches("lm_head", PatternSyntax::compressed_tensors, "lm_head"));
  EXPECT_FALSE(matches("lm_head", PatternSyntax::compressed_tensors, "language_model.lm_head"));
}

TEST(ModulePattern, PartsAndWildcards) {
  EXPECT_TRUE(matches("mlp.gate", PatternSyntax::part_of_name, "model.layers.1.mlp.gate"));
  EXPECT_FALSE(matches("mlp.gate", PatternSyntax::part_of_name, "model.layers.1.mlp.up_proj"));
  EXPECT_TRUE(matches("*self_attn*", PatternSyntax::wildcards, "model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(matches("lm_head", PatternSyntax::wildcards, "lm_head"));
  EXPECT_TRUE(matches("*", PatternSyntax::wildcards, ""));
  EXPECT_FALSE(matches("a*b*c", PatternSyntax::wildcards, "aXXbXX"));
  EXPECT_TRUE(matches("a*b*c", PatternSyntax::wildcards, "abXbcc"));
}

TEST(ModulePattern, NoExpressionIsNamedWithItsPlace) {
  const auto parsed = ModulePattern::parse("re:(", PatternSyntax::compressed_tensors);
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message.find("\"re:(\" is no regular expression"), std::string::npos)
      << parsed.error().message;
  EXPECT_FALSE(ModulePattern::parse(std::string(10'000, 'a'), PatternSyntax::wildcards));
}

TEST(ModulePattern, CostlyExpressionsEndInAnError) {
  const auto parsed = ModulePattern::parse("re:(?:a+)+[bc]", PatternSyntax::compressed_tensors);
  ASSERT_TRUE(parsed);
  const auto found = parsed->matches(std::string(200, 'a'));
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("too costly"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
