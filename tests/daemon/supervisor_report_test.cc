// What people and the service manager are told.

#include <gtest/gtest.h>

#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

TEST(SupervisorReport, TheServiceManagersDeadlineMovesAsLongAsAChangeIsUnderWay) {
  Harness h(1);
  h.memory_available = 100 * kGiB;
  h.serve(1, 1);
  h.reconfigure("threads", "3");
  const std::int64_t before = h.extensions;
  h.pass_for(seconds(90));
  EXPECT_GE(h.extensions, before + 3) << "while the new replica loads and says nothing";
  h.bring_up(1, 1);
  h.answer_probe();
  h.let_leave();
  h.pass_for(ChangeWatch::kWatchTime);
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_NE(h.service_status.find("generation 2"), std::string::npos) << h.service_status;
  const std::int64_t after = h.extensions;
  h.pass_for(seconds(90));
  EXPECT_EQ(h.extensions, after);
}

}  // namespace
}  // namespace plimsoll
