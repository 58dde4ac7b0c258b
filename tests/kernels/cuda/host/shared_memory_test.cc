#include "kernels/cuda/host/shared_memory.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

namespace plimsoll::host_cuda {
namespace {

TEST(SharedMemory, GivesEachPlaceItsOwnMemoryAndTheSameAgain) {
  SharedMemory memory;
  ASSERT_TRUE(memory.prepare(0));
  void* first = memory.declared(100, "a.cu", 1);
  void* second = memory.declared(100, "a.cu", 2);
  ASSERT_NE(first, nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(memory.declared(100, "a.cu", 1), first);
}

TEST(SharedMemory, IsFilledWithNaNForEachBlock) {
  SharedMemory memory;
  for (int block = 0; block < 2; ++block) {
    ASSERT_TRUE(memory.prepare(64));
    float value = 0;
    std::memcpy(&value, memory.dynamic() + 60, sizeof value);
    EXPECT_TRUE(std::isnan(value));
    std::memset(memory.dynamic(), 0, 64);
    auto* declared = static_cast<float*>(memory.declared(8, "a.cu", 1));
    EXPECT_TRUE(std::isnan(declared[1]));
    declared[1] = 0;
  }
}

TEST(SharedMemory, HasWhatABlockMayDeclareAndNoMore) {
  SharedMemory memory;
  ASSERT_TRUE(memory.prepare(0));
  EXPECT_EQ(memory.declared(48 * 1024, "a.cu", 1), nullptr);
  EXPECT_NE(memory.declared(47 * 1024, "a.cu", 2), nullptr);
  EXPECT_EQ(memory.declared(2 * 1024, "a.cu", 3), nullptr);
}

#if !defined(__SANITIZE_ADDRESS__)  // which stops at the write itself
TEST(SharedMemory, KnowsWhenDynamicMemoryWasOverrun) {
  SharedMemory memory;
  ASSERT_TRUE(memory.prepare(20));
  EXPECT_FALSE(memory.is_overrun());
  memory.dynamic()[20] = std::byte{1};
  EXPECT_TRUE(memory.is_overrun());
  ASSERT_TRUE(memory.prepare(20));
  EXPECT_FALSE(memory.is_overrun());
  *(memory.dynamic() - 1) = std::byte{1};
  EXPECT_TRUE(memory.is_overrun());
}
#endif

}  // namespace
}  // namespace plimsoll::host_cuda
