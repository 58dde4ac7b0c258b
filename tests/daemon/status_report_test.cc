#include "daemon/status_report.h"

#include <gtest/gtest.h>

#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

TEST(StatusReport, HasTheNamesThatItPromises) {
  Harness h(2, 2);
  h.serve(2);
  h.pong(0, 2, Pong{});
  h.pass_for(milliseconds(1500));
  h.pong(
      0, 2,
      Pong{.steps = 5, .running = 2, .waiting = 1, .kv_blocks_used = 9, .generated_tokens = 150});
  h.die(Harness::worker(1, 1));
  const Json status = status_json(h.supervisor(), h.now);
  for (const char* name :
       {"version",  "state",       "generation", "url",       "router",
        "replicas", "last_fault",  "queue",      "running",   "tokens_per_second",
        "kv",       "runtime_dir", "state_dir",  "log_file",  "options",
        "plan",     "uptime_s",    "reason",     "operation", "progress"}) {
    EXPECT_NE(status.find(name), nullptr) << name;
  }
  EXPECT_GT(status.find("router")->find("pid")->as_int(), 0);
  EXPECT_EQ(status.find("running")->as_int(), 2);
  EXPECT_EQ(status.find("queue")->as_int(), 1);
  EXPECT_NEAR(status.find("tokens_per_second")->as_double(), 100, 1);
  const Json& replica = status.find("replicas")->as_array()[1];
  EXPECT_EQ(replica.find("state")->as_string(), "restarting");
  const Json& rank = replica.find("ranks")->as_array()[0];
  for (const char* name :
       {"rank", "pid", "device", "state", "progress", "memory_bytes", "restarts"}) {
    EXPECT_NE(rank.find(name), nullptr) << name;
  }
}

}  // namespace
}  // namespace plimsoll
