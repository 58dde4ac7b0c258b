#include "worker/death_pipe.h"

#include <csignal>
#include <utility>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/control/descriptors.h"

namespace plimsoll {
namespace {

TEST(DeathPipe, EndsTheProcessWhenTheOtherEndCloses) {
  auto pair = descriptor_pair();
  ASSERT_TRUE(pair) << pair.error().message;
  const pid_t child = ::fork();
  if (child == 0) {
    pair->parent.reset();
    const auto watched = DeathPipe::watch(pair->child.get());
    if (!watched || !send_descriptor(pair->child.get(), "watching", STDIN_FILENO)) ::_exit(1);
    ::poll(nullptr, 0, 30'000);
    ::_exit(2);
  }
  ASSERT_GT(child, 0);
  pair->child.reset();
  EXPECT_TRUE(receive_descriptor(pair->parent.get(), seconds(20)));
  pair->parent.reset();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kOrphanExitCode);
}

TEST(DeathPipe, LeavesDescriptorsForOthersToRead) {
  auto pair = descriptor_pair();
  ASSERT_TRUE(pair) << pair.error().message;
  const auto watched = DeathPipe::watch(pair->child.get());
  ASSERT_TRUE(watched) << watched.error().message;
  ASSERT_TRUE(send_descriptor(pair->parent.get(), "segment", STDIN_FILENO));
  const auto received = receive_descriptor(pair->child.get(), seconds(10));
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_EQ(received->tag, "segment");
}

TEST(DeathPipe, RefusesToStartWithoutASupervisor) {
  auto pair = descriptor_pair();
  ASSERT_TRUE(pair) << pair.error().message;
  pair->parent.reset();
  EXPECT_FALSE(DeathPipe::watch(pair->child.get()));
  EXPECT_FALSE(DeathPipe::watch(987));
}

}  // namespace
}  // namespace plimsoll
