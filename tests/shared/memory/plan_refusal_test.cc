#include "shared/memory/plan_refusal.h"

#include <gtest/gtest.h>

#include "tests/support/plan_cases.h"

namespace plimsoll {
namespace {

TEST(PlanRefusal, OptionsSayWhereTheirValueCameFrom) {
  const OptionSet options = test_options({"--mem-fraction-static=0.55"});
  EXPECT_EQ(option_line(options, "mem-fraction-static", ""),
            "  mem-fraction-static = 0.550 (flag --mem-fraction-static)");
  EXPECT_EQ(option_line(options, "context-length", ", lowered"),
            "  context-length = auto, lowered (default)");
}

TEST(PlanRefusal, SumsLeaveOutWhatIsNothing) {
  EXPECT_EQ(sum_text({{Term::weights, kGiB, "", Trust::computed},
                      {Term::graphs, 0, "", Trust::computed},
                      {Term::kv, kMiB, "", Trust::computed}}),
            "weights 1.00 GiB + kv 1.0 MiB");
}

}  // namespace
}  // namespace plimsoll
