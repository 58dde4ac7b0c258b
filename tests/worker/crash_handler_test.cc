#include "worker/crash_handler.h"

#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/base/check.h"
#include "shared/base/crash_mark.h"
#include "shared/base/shared_block.h"

namespace plimsoll {
namespace {

constexpr ReplicaSegmentShape kShape = {.ranks = 2};

class CrashHandlerTest : public ::testing::Test {
 protected:
  CrashHandlerTest() {
    auto block = SharedBlock::create("test", replica_segment_bytes(kShape));
    CHECK(block);
    block_.emplace(std::move(*block));
    auto segment = init_replica_segment(block_->bytes(), kShape);
    CHECK(segment);
    segment_.emplace(*segment);
  }

  // How a process ends that is rank 1 and does that.
  template <typename Act>
  int end_of(Act act) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const rlimit no_core{0, 0};
      ::setrlimit(RLIMIT_CORE, &no_core);
      std::optional<CrashHandler> handler;
      auto installed = CrashHandler::install(*segment_, 1);
      if (!installed) ::_exit(99);
      handler.emplace(std::move(*installed));
      act(handler);
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
  }

  std::optional<SharedBlock> block_;
  std::optional<ReplicaSegment> segment_;
};

TEST_F(CrashHandlerTest, WritesDownTheSignalFreesThePeersAndDiesOfIt) {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) {
    segment_ = *init_replica_segment(block_->bytes(), kShape);
    const int status = end_of([number](auto&) { ::raise(number); });
    ASSERT_TRUE(WIFSIGNALED(status)) << number;
    EXPECT_EQ(WTERMSIG(status), number);
    EXPECT_EQ(segment_->mark(1).crash_signal, number);
    EXPECT_EQ(segment_->mark(0).crash_signal, 0);
    EXPECT_TRUE(segment_->aborted());
    EXPECT_EQ(segment_->abort_reason(), "a crash of rank 1");
  }
}

TEST_F(CrashHandlerTest, TellsWhetherASignalWasItsOwnOrWasSent) {
  (void)end_of([](auto&) { ::raise(SIGSEGV); });
  EXPECT_EQ(segment_->mark(1).crash_address, kCrashRaised);
  segment_ = *init_replica_segment(block_->bytes(), kShape);
  (void)end_of([](auto&) {
    const pid_t rank = ::getpid();
    if (::fork() == 0) {
      ::kill(rank, SIGSEGV);
      ::_exit(0);
    }
    for (;;) ::pause();
  });
  EXPECT_EQ(segment_->mark(1).crash_signal, SIGSEGV);
  EXPECT_EQ(segment_->mark(1).crash_address, kCrashSent);
}

TEST_F(CrashHandlerTest, TellsTheAddressOfABadAccess) {
  const int status = end_of([](auto&) {
    volatile std::uintptr_t nowhere = 0x40;  // not known to the compiler
    *reinterpret_cast<volatile int*>(nowhere) = 1;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(segment_->mark(1).crash_address, 0x40U);
}

TEST_F(CrashHandlerTest, AFailedCheckIsACrash) {
  const int status = end_of([](auto&) {
    (void)::close(2);
    CHECK(false);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_EQ(segment_->mark(1).crash_signal, SIGABRT);
}

TEST_F(CrashHandlerTest, KeepsTheFirstReasonOfAnAbort) {
  segment_->abort("an earlier one");
  end_of([](auto&) { ::raise(SIGSEGV); });
  EXPECT_EQ(segment_->abort_reason(), "an earlier one");
  EXPECT_EQ(segment_->mark(1).crash_signal, SIGSEGV);
}

TEST_F(CrashHandlerTest, OnceDestroyedItLeavesTheSegmentAlone) {
  const int status = end_of([](std::optional<CrashHandler>& handler) {
    handler.reset();
    ::raise(SIGSEGV);
  });
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_FALSE(segment_->aborted());
}

}  // namespace
}  // namespace plimsoll
