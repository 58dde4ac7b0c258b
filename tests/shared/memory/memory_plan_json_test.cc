#include <gtest/gtest.h>

#include "shared/memory/memory_plan.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"

namespace plimsoll {
namespace {

Json plan_json(std::vector<std::string> flags) {
  const Result<MemoryPlan> plan =
      plan_memory(test_machine(4 * kGiB, 4, 2), make_llama_spec(smollm2_shape()),
                  test_options(std::move(flags)));
  EXPECT_TRUE(plan);
  return memory_plan_to_json(*plan);
}

TEST(MemoryPlanJson, ReadsBackAsTheSame) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--tp=2", "--dp=2"}, {"--device-memory=1MiB"}}) {
    const Json json = plan_json(flags);
    const Result<MemoryPlan> read = memory_plan_from_json(json);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(dump_json(memory_plan_to_json(*read)), dump_json(json));
  }
}

TEST(MemoryPlanJson, NamesTheMemberThatIsMissingOrWrong) {
  const Json whole = plan_json({});
  for (const auto& [key, value] : whole.as_object()) {
    Json::Object fewer;
    for (const Json::Member& member : whole.as_object()) {
      if (member.first != key) fewer.push_back(member);
    }
    const Result<MemoryPlan> read = memory_plan_from_json(Json(fewer));
    if (read) continue;  // a member that may be absent
    EXPECT_EQ(read.error().code, Code::invalid);
    EXPECT_NE(read.error().message.find(key), std::string::npos) << read.error().message;
    Json wrong = whole;
    wrong.set(key, Json::object({{"odd", true}}));
    EXPECT_FALSE(memory_plan_from_json(wrong)) << key;
  }
  EXPECT_FALSE(memory_plan_from_json(Json("text")));
  EXPECT_FALSE(memory_plan_from_json(Json::object()));
}

}  // namespace
}  // namespace plimsoll
