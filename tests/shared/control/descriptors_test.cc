#include "shared/control/descriptors.h"

#include <array>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace plimsoll {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(Descriptors, ArriveInOrderWithTheirTagsAndCloseOnExec) {
  SocketPair pair = std::move(*descriptor_pair());
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(::pipe(pipe_ends.data()), 0);
  const UniqueFd reader(pipe_ends[0]);
  const UniqueFd writer(pipe_ends[1]);
  ASSERT_TRUE(send_descriptor(pair.parent.get(), "segment", writer.get()));
  ASSERT_TRUE(send_descriptor(pair.parent.get(), "listener", reader.get()));

  const Result<TaggedFd> first = receive_descriptor(pair.child.get(), seconds(5));
  const Result<TaggedFd> second = receive_descriptor(pair.child.get(), seconds(5));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->tag, "segment");
  EXPECT_EQ(second->tag, "listener");
  EXPECT_NE(::fcntl(first->fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::write(first->fd.get(), "x", 1), 1);
  char got = 0;
  EXPECT_EQ(::read(second->fd.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
}

TEST(Descriptors, APeerThatHasGoneIsUnavailable) {
  SocketPair pair = std::move(*descriptor_pair());
  pair.parent.reset();
  const Result<TaggedFd> received = receive_descriptor(pair.child.get(), seconds(5));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, Code::unavailable);
  const Status sent = send_descriptor(pair.child.get(), "segment", 0);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::unavailable);
}

TEST(Descriptors, NothingInTimeIsATimeOut) {
  const SocketPair pair = std::move(*descriptor_pair());
  const Result<TaggedFd> received = receive_descriptor(pair.child.get(), milliseconds(1));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, Code::timed_out);
}

TEST(Descriptors, AMessageWithoutADescriptorIsRefused) {
  const SocketPair pair = std::move(*descriptor_pair());
  ASSERT_EQ(::send(pair.parent.get(), "segment", 7, 0), 7);
  const Result<TaggedFd> received = receive_descriptor(pair.child.get(), seconds(5));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, Code::invalid);
}

TEST(Descriptors, ASenderThatIsNotReadNeverBlocks) {
  const SocketPair pair = std::move(*descriptor_pair());
  Status sent;
  int count = 0;
  while (sent && count < 100'000) {
    sent = send_descriptor(pair.parent.get(), "segment", pair.child.get());
    ++count;
  }
  EXPECT_FALSE(sent);
  EXPECT_TRUE(is_open(pair.child.get()));
}

TEST(Descriptors, TagsAreBounded) {
  const SocketPair pair = std::move(*descriptor_pair());
  EXPECT_FALSE(send_descriptor(pair.parent.get(), "", 0));
  EXPECT_FALSE(send_descriptor(pair.parent.get(), std::string(65, 'x'), 0));
}

}  // namespace
}  // namespace plimsoll
