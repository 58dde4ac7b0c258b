#include "worker/rank_backend.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

LaunchedRank on_cpu() {
  LaunchedRank launched;
  launched.backend.threads = 1;
  return launched;
}

TEST(RankBackend, IsTheCpusWhereThePlanHasNoDevice) {
  const auto made = make_rank_backend(on_cpu());
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->backend->device_memory(), nullptr);
  EXPECT_FALSE(made->context);
}

TEST(RankBackend, OnTheHostExecutorHasTheMemoryOfItsBudget) {
  LaunchedRank launched = on_cpu();
  launched.on_host_cuda = true;
  launched.plan.budget = 3 * kMiB;
  const auto made = make_rank_backend(launched);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->backend->device_memory()->state()->total, 3 * kMiB);
  EXPECT_FALSE(made->context) << "it is a CPU rank";
}

TEST(RankBackend, OfAGpuThatIsNotThereSaysSoOrHowToGetItsDriver) {
  LaunchedRank launched = on_cpu();
  launched.plan.device = 0;
  launched.plan.device_uuid = "GPU-00000000-0000-0000-0000-000000000000";
  const auto made = make_rank_backend(launched);
  ASSERT_FALSE(made);
  EXPECT_FALSE(made.error().message.empty());
}

}  // namespace
}  // namespace plimsoll
