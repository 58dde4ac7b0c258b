#include "worker/process_memory.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/fake_root.h"
#include "worker/arena.h"

namespace plimsoll {
namespace {

TEST(ProcessMemory, ReadsThePartsOfThePss) {
  const FakeRoot root("process_memory_1");
  root.file("proc/self/smaps_rollup",
            "55d8-7ffe ---p 00000000 00:00 0  [rollup]\nRss:            9000 kB\nPss:            "
            "7000 kB\nPss_Anon:       5000 kB\nPss_File:       1500 kB\nPss_Shmem:       500 kB\n");
  const Result<ProcessMemory> memory = read_process_memory(root.path());
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ(memory->total, 7000 * kKiB);
  EXPECT_EQ(memory->anonymous, 5000 * kKiB);
  EXPECT_EQ(memory->file, 1500 * kKiB);
  EXPECT_EQ(memory->shared, 500 * kKiB);
}

TEST(ProcessMemory, AFileWithoutPssIsNoAnswer) {
  const FakeRoot root("process_memory_2");
  EXPECT_FALSE(read_process_memory(root.path()));
  root.file("proc/self/smaps_rollup", "Rss: 1 kB\n");
  EXPECT_FALSE(read_process_memory(root.path()));
}

TEST(ProcessMemory, OfThisProcessIsMoreThanNothing) {
  const Result<ProcessMemory> memory = read_process_memory();
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_GT(memory->anonymous, 0);
  EXPECT_GE(memory->total, memory->anonymous);
}

TEST(ProcessMemory, OfAMapItIsWhatTheKernelSaysOfItsParts) {
  const FakeRoot root("process_memory_3");
  root.file("proc/self/smaps",
            "00010000-00012000 rw-p 00000000 00:00 0\nRss:  8 kB\nPss:  8 kB\n"
            "00012000-00014000 r--p 00000000 00:01 7 /memfd:w (deleted)\nRss:  8 kB\nPss:  4 kB\n"
            "SwapPss: 0 kB\n00014000-00015000 r--p 00002000 00:01 7\nPss:  2 kB\n"
            "00015000-00016000 rw-p 00000000 00:00 0\nPss:  16 kB\n");
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that is only compared
  const std::span<const std::byte> map(reinterpret_cast<const std::byte*>(0x12000), 0x3000);
  EXPECT_EQ(proportional_bytes(*read_maps(root.path()), map), 6 * kKiB);
  EXPECT_FALSE(read_maps(root.path() / "nowhere"));
}

TEST(ProcessMemory, OfTheProgramOnlyWhatIsChangedIsOwn) {
  const FakeRoot root("process_memory_4");
  root.file("proc/self/smaps",
            "00010000-00012000 r-xp 00000000 00:01 7   /opt/worker\nRss:  80 kB\nPss:  20 kB\n"
            "Anonymous:  0 kB\nAnonHugePages:  8 kB\n"
            "00012000-00014000 r--p 00020000 00:01 7   /opt/worker\nRss:  8 kB\nPss:  6 kB\n"
            "Pss_Anon:  4 kB\nAnonymous:  4 kB\n"
            "00015000-00016000 r-xp 00000000 00:01 9   /opt/other/opt/worker\nRss:  16 kB\n");
  const std::string maps = *read_maps(root.path());
  EXPECT_FALSE(read_program_memory(maps, root.path()));
  std::filesystem::create_symlink("/opt/worker", root.path() / "proc/self/exe");
  const Result<ProgramMemory> program = read_program_memory(maps, root.path());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->proportional, 26 * kKiB);
  EXPECT_EQ(program->own, 4 * kKiB);
  EXPECT_EQ(program->file, 84 * kKiB);
}

TEST(ProcessMemory, OfThisProgramThereIsSomething) {
  const Result<ProgramMemory> program = read_program_memory(*read_maps());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_GT(program->file, 0);
  EXPECT_GT(program->own, 0);
  EXPECT_GT(program->proportional, 0);
}

TEST(ProcessMemory, PagesCountOnceTheyAreTouched) {
  const auto map = MappedMemory::create({.bytes = 1 * kMiB, .huge_pages = false, .purpose = "a"});
  ASSERT_TRUE(map);
  const std::span<std::byte> bytes = map->bytes();
  EXPECT_EQ(*touched_bytes(bytes), 0);
  bytes[0] = std::byte{1};
  bytes[300 * 1024] = std::byte{1};
  EXPECT_EQ(*touched_bytes(bytes), 8 * kKiB);
  ASSERT_TRUE(map->populate("a"));
  EXPECT_EQ(*touched_bytes(bytes), kMiB);
  EXPECT_EQ(*touched_bytes({}), 0);
}

}  // namespace
}  // namespace plimsoll
