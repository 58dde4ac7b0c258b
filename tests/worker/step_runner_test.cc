#include "worker/step_runner.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

class NothingRunner final : public StepRunner {
 public:
  explicit NothingRunner(Status kv)
      : StepRunner({.rows_max = 8, .logit_rows_max = 4, .context_length = 64}),
        kv_(std::move(kv)) {}

 private:
  Status take_kv(const KvRequest&) override { return kv_; }
  Result<TensorView> compute(const StepPlan&) override { return TensorView{}; }
  Status kv_;
};

StepPlan step_with(std::vector<std::int32_t> blocks) {
  StepPlan plan;
  plan.blocks = std::move(blocks);
  return plan;
}

TEST(StepRunner, LimitsStandOnceKvIsAllocated) {
  NothingRunner runner{Status()};
  ASSERT_TRUE(runner.allocate_kv({.blocks = 10, .sequences_max = 3}));
  const StepLimits& limits = runner.step_limits();
  EXPECT_EQ(limits.rows_max, 8);
  EXPECT_EQ(limits.logit_rows_max, 4);
  EXPECT_EQ(limits.sequences_max, 3);
  EXPECT_EQ(limits.kv_blocks, 10);
  EXPECT_EQ(limits.table_blocks_max, 10) << "three sequences name six blocks at most";
}

TEST(StepRunner, CountsEachBlockThatHasHeldATokenOnce) {
  NothingRunner runner{Status()};
  ASSERT_TRUE(runner.allocate_kv({.blocks = 4, .sequences_max = 1}));
  ASSERT_TRUE(runner.run(step_with({0, 1})));
  ASSERT_TRUE(runner.run(step_with({1, 2, 1})));
  EXPECT_EQ(runner.kv_blocks_touched(), 3);
}

TEST(StepRunner, MemoryThatCannotBeHadLeavesItWithoutKv) {
  NothingRunner runner{does_not_fit("no")};
  EXPECT_FALSE(runner.allocate_kv({.blocks = 4, .sequences_max = 1, .prefault = true}));
  EXPECT_EQ(runner.kv_blocks_touched(), 0);
  EXPECT_EQ(runner.step_limits().kv_blocks, 0);
}

}  // namespace
}  // namespace plimsoll
