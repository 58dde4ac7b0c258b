#include "shared/base/sealed_block.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace plimsoll {
namespace {

constexpr Bytes kBytes = 5 * kMiB + 777;  // two huge pages and a rest

UniqueFd make() { return std::move(*SealedBlock::create("test", kBytes)); }

// A test of what comes after needs a kernel that has such blocks at all.
#define OPEN_OR_SKIP(name, fd)                                                              \
  auto name##_opened = SealedBlock::open(fd, kBytes, "label");                              \
  if (!name##_opened && name##_opened.error().message.find("2 MiB") != std::string::npos) { \
    GTEST_SKIP() << name##_opened.error().message;                                          \
  }                                                                                         \
  ASSERT_TRUE(name##_opened) << name##_opened.error().message;                              \
  ASSERT_TRUE(*name##_opened);                                                              \
  SealedBlock& name = **name##_opened

void fill(SealedBlock& block) {
  for (std::size_t i = 0; i < block.bytes().size(); i += 1000)
    block.bytes()[i] = std::byte(i % 251);
}

bool is_filled(const SealedBlock& block) {
  for (std::size_t i = 0; i < block.bytes().size(); i += 1000) {
    if (block.bytes()[i] != std::byte(i % 251)) return false;
  }
  return true;
}

TEST(SealedBlock, KeepsWhatItsWriterFilledItWithWhenTheWriterIsGone) {
  const UniqueFd fd = make();
  {
    OPEN_OR_SKIP(writer, fd.get());
    EXPECT_FALSE(writer.is_sealed());
    EXPECT_EQ(std::ssize(writer.bytes()), kBytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(writer.bytes().data()) % (2 * kMiB), 0U);
    fill(writer);
    const std::byte* where = writer.bytes().data();
    ASSERT_TRUE(writer.seal());
    EXPECT_TRUE(writer.is_sealed());
    EXPECT_EQ(writer.bytes().data(), where);  // pointers into it hold
    EXPECT_TRUE(is_filled(writer));
  }
  OPEN_OR_SKIP(reader, fd.get());
  EXPECT_TRUE(reader.is_sealed());
  EXPECT_TRUE(is_filled(reader));
  EXPECT_EQ(SealedBlock::label_of(fd.get()), "label");
}

TEST(SealedBlock, CannotBeWrittenAnyMoreOnceItIsSealed) {
  const UniqueFd fd = make();
  OPEN_OR_SKIP(writer, fd.get());
  ASSERT_TRUE(writer.seal());
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(fd.get(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(fd.get(), 0), -1);
}

TEST(SealedBlock, HasOneWriterAtATime) {
  const UniqueFd fd = make();
  OPEN_OR_SKIP(writer, fd.get());
  const auto second = SealedBlock::open(fd.get(), kBytes, "label");
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_FALSE(*second);  // come back
  ASSERT_TRUE(writer.seal());
  OPEN_OR_SKIP(reader, fd.get());
  EXPECT_TRUE(reader.is_sealed());
}

TEST(SealedBlock, OfAWriterThatWasKilledIsFilledByTheNext) {
  const UniqueFd fd = make();
  const pid_t child = ::fork();
  if (child == 0) {
    auto block = SealedBlock::open(fd.get(), kBytes, "label");
    if (!block || !*block) ::_exit(1);
    fill(**block);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) GTEST_SKIP() << "the kernel has no 2 MiB pages for a block";
  EXPECT_EQ(SealedBlock::label_of(fd.get()), std::nullopt);
  OPEN_OR_SKIP(next, fd.get());
  EXPECT_FALSE(next.is_sealed());
  EXPECT_TRUE(std::ranges::all_of(next.bytes(), [](std::byte b) { return b == std::byte(0); }));
}

TEST(SealedBlock, WithAnotherLabelOrSizeIsRefused) {
  const UniqueFd fd = make();
  OPEN_OR_SKIP(writer, fd.get());
  ASSERT_TRUE(writer.seal());
  const auto other = SealedBlock::open(fd.get(), kBytes, "another");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message, "a block of memory has 'label' in it; wanted is 'another'");
  const auto longer = SealedBlock::open(fd.get(), kBytes + 4096, "label");
  ASSERT_FALSE(longer);
  EXPECT_NE(longer.error().message.find("bytes of contents need"), std::string::npos);
  EXPECT_EQ(SealedBlock::label_of(STDIN_FILENO), std::nullopt);
}

TEST(SealedBlock, LiesInHugePages) {
  const UniqueFd fd = make();
  OPEN_OR_SKIP(writer, fd.get());
  fill(writer);
  ASSERT_TRUE(writer.seal());
  ASSERT_TRUE(is_filled(writer));  // touches all of it
  std::ifstream smaps("/proc/self/smaps");
  std::string word;
  Bytes mapped = 0;
  while (smaps >> word) {
    Bytes kib = 0;
    if (word == "ShmemPmdMapped:" && smaps >> kib) mapped += kib * kKiB;
  }
  EXPECT_EQ(mapped, 4 * kMiB);
}

}  // namespace
}  // namespace plimsoll
