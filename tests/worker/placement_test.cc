#include "worker/placement.h"

#include <thread>

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace plimsoll {
namespace {

TEST(Placement, AtLeastOneCpuIsUsable) { EXPECT_GE(usable_cpus(), 1); }

TEST(Placement, NodesThatCannotBeAreRefusedWithAReason) {
  for (const int node : {-1, 1023, 5000}) {
    const Status bound = bind_to_memory_node(node);
    ASSERT_FALSE(bound) << node;
    EXPECT_EQ(bound.error().code, Code::unavailable);
  }
}

TEST(Placement, TheFirstNodeCanBeBoundOrIsRefusedByTheSystem) {
  std::thread other([] {  // the policy is of one thread
    const Status bound = bind_to_memory_node(0);
    if (bound) {
      int policy = -1;
      ASSERT_EQ(::syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0), 0);
      EXPECT_EQ(policy, MPOL_PREFERRED) << "a strict bind runs out of memory beside a free node";
      return;
    }
    EXPECT_EQ(bound.error().code, Code::unavailable);  // a container without the permission
  });
  other.join();
}

}  // namespace
}  // namespace plimsoll
