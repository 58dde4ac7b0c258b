#include "worker/placement.h"

#include <thread>

#include <gtest/gtest.h>

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
    if (bound) return;
    EXPECT_EQ(bound.error().code, Code::unavailable);  // a container without the permission
  });
  other.join();
}

}  // namespace
}  // namespace plimsoll
