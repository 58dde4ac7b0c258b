// Each file of tests/golden/plans is a reported case: inputs, and the plan or refusal that is
// right.

#include <ctime>

#include <gtest/gtest.h>

#include "tests/support/plan_golden.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

class GoldenPlan : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(GoldenPlan, IsAsExpected) {
  const std::clock_t begin = std::clock();
  for (const std::string& difference : run_plan_case(GetParam())) ADD_FAILURE() << difference;
  // Time of this process, so that a busy machine is no failure.
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
}

std::string case_name(const testing::TestParamInfo<std::filesystem::path>& info) {
  std::string name = info.param.stem().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenPlan, testing::ValuesIn(plan_case_files()), case_name);

}  // namespace
}  // namespace plimsoll
