#include "shared/memory/foreign_log/oom_line.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(OomLine, TheWordingOfTorch2NamesWhoHoldsWhat) {
  const auto oom = parse_oom_line(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB. GPU 2 has a total "
      "capacity of 139.75 GiB of which 512.00 MiB is free. Process 2951793 has 15.50 GiB memory in "
      "use. Including non-PyTorch memory, this process has 123.25 GiB memory in use. Of the "
      "allocated memory 120.00 GiB is allocated by PyTorch, and 2.50 GiB is reserved by PyTorch "
      "but unallocated.");
  ASSERT_TRUE(oom);
  EXPECT_EQ(oom->tried, kGiB * 5 / 4);
  EXPECT_EQ(oom->total, kGiB * 559 / 4);
  EXPECT_EQ(oom->free, 512 * kMiB);
  EXPECT_EQ(oom->in_use, kGiB * 493 / 4);
  EXPECT_EQ(oom->reserved_unallocated, kGiB * 5 / 2);
  EXPECT_EQ(oom->held_by_others(), kGiB * 31 / 2);
}

TEST(OomLine, WhatIsMissingFromTheTotalIsHeldByOthers) {
  const auto oom = parse_oom_line(
      "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a "
      "total capacty of 24.00 GiB of which 0 bytes is free. Including non-PyTorch memory, this "
      "process has 4.00 GiB memory in use.");
  ASSERT_TRUE(oom);
  EXPECT_EQ(oom->held_by_others(), 20 * kGiB);
}

TEST(OomLine, OlderTorchAndOtherBackendsAreReadToo) {
  const auto old = parse_oom_line(
      "RuntimeError: CUDA out of memory. Tried to allocate 96.00 MiB (GPU 0; 23.50 GiB total "
      "capacity; 22.50 GiB already allocated; 4.50 MiB free; 23.00 GiB reserved in total by "
      "PyTorch)");
  ASSERT_TRUE(old);
  EXPECT_EQ(old->total, kGiB * 47 / 2);
  EXPECT_EQ(old->free, kMiB * 9 / 2);
  EXPECT_EQ(old->in_use, 23 * kGiB);
  EXPECT_EQ(old->held_by_others(), 0);
  EXPECT_TRUE(parse_oom_line("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2 GiB"));
  EXPECT_TRUE(parse_oom_line("RuntimeError: CUDA error: out of memory"));
}

TEST(OomLine, DriversThatCannotTellBlameNobody) {
  const auto oom = parse_oom_line(
      "CUDA out of memory. Tried to allocate 34.00 MiB. GPU 0 has a total capacity of 4.00 GiB of "
      "which 0 bytes is free. Including non-PyTorch memory, this process has 17179869184.00 GiB "
      "memory in use.");
  ASSERT_TRUE(oom);
  EXPECT_EQ(oom->held_by_others(), 0);
}

// Another way in which containers are told nothing.
TEST(OomLine, ZeroBytesInUseAreNotBelieved) {
  const std::string head =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total "
      "capacity of 22.00 GiB of which 1.25 GiB is free. Including non-PyTorch memory, this process "
      "has 0 bytes memory in use.";
  const auto oom = parse_oom_line(head +
                                  " Of the allocated memory 19.00 GiB is allocated by PyTorch, and "
                                  "1.25 GiB is reserved by PyTorch but unallocated.");
  ASSERT_TRUE(oom);
  EXPECT_EQ(oom->held_by_others(), 0);
  EXPECT_EQ(parse_oom_line(head)->held_by_others(), 0) << "nothing is known of it";
  EXPECT_EQ(parse_oom_line(head)->held_by_others({.held_min = 10 * kGiB}), kGiB * 43 / 4);
}

// Containers: PyTorch finds its own number nowhere and calls itself "Process N".
TEST(OomLine, WithoutThisProcessTheOneThatHoldsWhatPyTorchHasIsItself) {
  const auto oom = parse_oom_line(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.50 GiB. GPU 3 has a total "
      "capacity of 79.00 GiB of which 3.50 GiB is free. Process 40123 has 75.50 GiB memory in use. "
      "Of the allocated memory 73.00 GiB is allocated by PyTorch, with 120.00 MiB allocated in "
      "private pools (e.g., CUDA Graphs), and 256.00 MiB is reserved by PyTorch but unallocated.");
  ASSERT_TRUE(oom);
  EXPECT_EQ(oom->by_pytorch, 73 * kGiB);
  EXPECT_EQ(oom->reserved_unallocated, 256 * kMiB);
  EXPECT_EQ(oom->held_by_others(), 0);
  EXPECT_EQ(
      parse_oom_line("CUDA out of memory. Tried to allocate 4 GiB. GPU 3 has a total capacity "
                     "of 79.10 GiB of which 1.50 GiB is free. Process 70 has 77.50 GiB "
                     "memory in use.")
          ->held_by_others(),
      0)
      << "alone it can be no other";
  const auto two = parse_oom_line(
      "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 79.00 GiB of "
      "which 0.50 GiB is free. Process 5 has 56.00 GiB memory in use. Process 6 has 22.50 GiB "
      "memory in use. Of the allocated memory 21.00 GiB is allocated by PyTorch, and 1.00 MiB is "
      "reserved by PyTorch but unallocated.");
  ASSERT_TRUE(two);
  EXPECT_EQ(two->held_by_others(), 56 * kGiB);
  const auto none = parse_oom_line(
      "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 79.00 GiB of "
      "which 0.50 GiB is free. Process 5 has 56.00 GiB memory in use. Of the allocated memory "
      "58.00 GiB is allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated.");
  EXPECT_EQ(none->held_by_others(), 56 * kGiB) << "none of them can be itself";
}

TEST(OomLine, WhatTheLogKnowsOfTheProcessTellsWhichOneItIs) {
  const auto oom = parse_oom_line(
      "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 79.00 GiB of "
      "which 0.50 GiB is free. Process 70 has 56.00 GiB memory in use. Process 6 has 22.50 GiB "
      "memory in use.");
  ASSERT_TRUE(oom);
  EXPECT_EQ(oom->held_by_others({.pid = 70}), kGiB * 45 / 2);
  EXPECT_EQ(oom->held_by_others({.pid = 6}), 56 * kGiB);
  EXPECT_EQ(oom->held_by_others({.held_min = 20 * kGiB}), 56 * kGiB);
  EXPECT_EQ(oom->held_by_others({.held_min = 30 * kGiB}), kGiB * 45 / 2);
  EXPECT_EQ(oom->held_by_others({.others = 57 * kGiB}), 56 * kGiB);
  EXPECT_EQ(oom->held_by_others({.others = 22 * kGiB}), kGiB * 45 / 2);
  EXPECT_EQ(oom->held_by_others(), kGiB * 45 / 2) << "else the largest";
}

TEST(OomLine, OtherLinesAreNone) {
  EXPECT_FALSE(parse_oom_line("The host ran out of memory lanes"));
  EXPECT_FALSE(parse_oom_line("Load weight end. avail mem=1 GB"));
  EXPECT_FALSE(parse_oom_line(""));
}

TEST(OomLine, CodesOfLibrariesAreMemoryToo) {
  EXPECT_TRUE(parse_oom_line("NCCL WARN Cuda failure 2 'out of memory'"));
  EXPECT_TRUE(
      parse_oom_line("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
                     "`cublasCreate(handle)`"));
  EXPECT_TRUE(parse_oom_line("cudaErrorMemoryAllocation: out of memory"));
  EXPECT_TRUE(parse_oom_line("CUresult error  result=2 func=cu_mem_create"));
  EXPECT_FALSE(parse_oom_line("CUresult error  result=201 func=cu_mem_create"));
}

}  // namespace
}  // namespace plimsoll
