#include "worker/ledger_lines.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(LedgerLines, EachRowIsSaidAsExplainSaysItWithWhatItHasComeTo) {
  RankPlan plan;
  plan.rows = {{Term::weights, 2048, "1 x 2,048 B", Trust::computed},
               {Term::graphs, 1024, "none yet", Trust::assumed},
               {Term::kv, 4096, "4 blocks x 1,024 B", Trust::computed}};
  Measured measured;
  measured.terms["weights"] = 2000;
  measured.kv_committed = 3072;
  EXPECT_EQ(ledger_lines(plan, measured, 4, 3),
            (std::vector<std::string>{
                "weights = 2,048 B = 2.0 KiB: 1 x 2,048 B (computed, in phase load); measured "
                "2,000 B",
                "graphs = 1,024 B = 1.0 KiB: none yet (assumed, in phase capture)",
                "kv = 4,096 B = 4.0 KiB: 4 blocks x 1,024 B (computed, in phase serve); committed "
                "3 of 4 blocks = 3,072 B"}));
}

}  // namespace
}  // namespace plimsoll
