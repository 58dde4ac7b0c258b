#include "shared/base/shared_block.h"

#include <algorithm>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace plimsoll {
namespace {

UniqueFd duplicate(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

TEST(SharedBlock, IsZeroedAndHasEveryPageReserved) {
  const Result<SharedBlock> block = SharedBlock::create("test", 3 * kMiB);
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->bytes().size(), static_cast<std::size_t>(3 * kMiB));
  EXPECT_TRUE(std::all_of(block->bytes().begin(), block->bytes().end(),
                          [](std::byte b) { return b == std::byte{0}; }));
  struct stat status {};
  ASSERT_EQ(::fstat(block->fd(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 3 * kMiB);
}

TEST(SharedBlock, IsTheSameMemoryForWhoeverMapsTheDescriptor) {
  Result<SharedBlock> block = SharedBlock::create("test", 10'000);
  ASSERT_TRUE(block.has_value());
  Result<SharedBlock> other = SharedBlock::map(duplicate(block->fd()), 10'000);
  ASSERT_TRUE(other.has_value()) << other.error().message;
  block->bytes()[9'999] = std::byte{42};
  EXPECT_EQ(other->bytes()[9'999], std::byte{42});
}

TEST(SharedBlock, OutlivesItsCreator) {
  Result<SharedBlock> other = [] {
    Result<SharedBlock> block = SharedBlock::create("test", 4096);
    block->bytes()[1] = std::byte{7};
    return SharedBlock::map(duplicate(block->fd()), 4096);
  }();
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->bytes()[1], std::byte{7});
}

TEST(SharedBlock, NobodyCanResizeIt) {
  const Result<SharedBlock> block = SharedBlock::create("test", 8192);
  ASSERT_TRUE(block.has_value());
  EXPECT_NE(::ftruncate(block->fd(), 4096), 0);
  EXPECT_NE(::ftruncate(block->fd(), 16384), 0);
}

TEST(SharedBlock, RefusesADescriptorThatIsTooShort) {
  const Result<SharedBlock> block = SharedBlock::create("test", 4096);
  ASSERT_TRUE(block.has_value());
  Result<SharedBlock> other = SharedBlock::map(duplicate(block->fd()), 4097);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, Code::invalid);
  EXPECT_NE(other.error().message.find("it has 4096 bytes, needed are 4097"), std::string::npos)
      << other.error().message;
}

TEST(SharedBlock, RefusesForeignDescriptors) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
  const UniqueFd write_end(pipe_fds[1]);
  EXPECT_FALSE(SharedBlock::map(UniqueFd(pipe_fds[0]), 1).has_value());
  EXPECT_FALSE(SharedBlock::map(UniqueFd(), 1).has_value());
  UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  Result<SharedBlock> block = SharedBlock::map(std::move(unsealed), 4096);
  ASSERT_FALSE(block.has_value());
  EXPECT_NE(block.error().message.find("sealed"), std::string::npos) << block.error().message;
}

// The kernel's count of shared memory in use, all processes together.
Bytes shared_memory_in_use() {
  std::ifstream facts("/proc/meminfo");
  std::string key;
  Bytes kibibytes = 0;
  std::string unit;
  while (facts >> key >> kibibytes >> unit) {
    if (key == "Shmem:") return kibibytes * kKiB;
  }
  return -1;
}

// Asks for far more than any machine has: what was reserved by mistake would take others' memory.
TEST(SharedBlock, MoreThanThereIsIsRefusedBeforeAnythingIsReserved) {
  constexpr Bytes kPebibyte = kGiB * kMiB;
  const Bytes before = shared_memory_in_use();
  ASSERT_GE(before, 0);
  Result<SharedBlock> block = SharedBlock::create("test", kPebibyte);
  const Bytes after = shared_memory_in_use();
  ASSERT_FALSE(block.has_value());
  EXPECT_EQ(block.error().code, Code::does_not_fit) << block.error().message;
  EXPECT_NE(block.error().message.find("of memory is available"), std::string::npos)
      << block.error().message;
  EXPECT_LT(after - before, 512 * kMiB);  // others may reserve a little meanwhile
}

TEST(SharedBlock, RefusesSizesThatAreNotPositive) {
  for (const Bytes bytes : {Bytes{0}, Bytes{-1}}) {
    Result<SharedBlock> block = SharedBlock::create("test", bytes);
    ASSERT_FALSE(block.has_value());
    EXPECT_EQ(block.error().code, Code::invalid);
  }
}

}  // namespace
}  // namespace plimsoll
