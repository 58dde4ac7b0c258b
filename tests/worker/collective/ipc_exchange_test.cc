#include "worker/collective/ipc_exchange.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "shared/base/shared_block.h"
#include "shared/control/descriptors.h"
#include "tests/support/run_ranks.h"
#include "tests/worker/collective/ipc_sockets.h"

namespace plimsoll {
namespace {

struct Group {
  explicit Group(int ranks)
      : block(std::move(*SharedBlock::create("test", replica_segment_bytes({.ranks = ranks})))),
        segment(*init_replica_segment(block.bytes(), {.ranks = ranks})),
        sockets(connect_ranks(ranks)) {}

  SharedBlock block;
  ReplicaSegment segment;
  std::vector<PeerFds> sockets;
};

ino_t file_of(int fd) {
  struct stat facts {};
  EXPECT_EQ(::fstat(fd, &facts), 0);
  return facts.st_ino;
}

TEST(IpcExchange, EveryRankGetsEveryPeersDescriptor) {
  Group group(3);
  std::vector<SharedBlock> own;
  for (int rank = 0; rank < 3; ++rank) own.push_back(std::move(*SharedBlock::create("own", 4096)));
  EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const auto received = exchange_descriptors(group.sockets[at], rank, own[at].fd(), "buffer",
                                               group.segment, seconds(20));
    ASSERT_TRUE(received) << received.error().message;
    for (std::size_t peer = 0; peer < 3; ++peer) {
      if (peer == at) {
        EXPECT_FALSE((*received)[peer]);
      } else {
        EXPECT_EQ(file_of((*received)[peer].get()), file_of(own[peer].fd()));
      }
    }
  })));
}

TEST(IpcExchange, APeerThatSendsNothingIsNamedAtTheDeadline) {
  Group group(2);
  const auto received = exchange_descriptors(group.sockets[0], 0, group.block.fd(), "buffer",
                                             group.segment, milliseconds(20));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, Code::timed_out);
  EXPECT_NE(received.error().message.find("get the buffer of rank 1"), std::string::npos)
      << received.error().message;
}

TEST(IpcExchange, AnAbortEndsIt) {
  Group group(2);
  group.segment.abort("rank 1 is out of memory");
  const auto received = exchange_descriptors(group.sockets[0], 0, group.block.fd(), "buffer",
                                             group.segment, seconds(20));
  ASSERT_FALSE(received);
  EXPECT_NE(received.error().message.find("rank 1 is out of memory"), std::string::npos);
}

TEST(IpcExchange, APeerThatIsGoneIsNamed) {
  Group group(2);
  group.sockets[1].clear();
  const auto received = exchange_descriptors(group.sockets[0], 0, group.block.fd(), "buffer",
                                             group.segment, seconds(20));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, Code::unavailable);
  EXPECT_NE(received.error().message.find("rank 1"), std::string::npos);
}

TEST(IpcExchange, WhatOneRankHasAllOthersGetByItsName) {
  Group group(3);
  EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) {
    const PeerFds& sockets = group.sockets[static_cast<std::size_t>(rank)];
    if (rank == 1) {
      ASSERT_TRUE(give_descriptor(sockets, 1, group.block.fd(), "nccl id"));
      return;
    }
    const bool asks_for_it = rank == 0;
    const auto received =
        take_descriptor(sockets, 1, asks_for_it ? "nccl id" : "buffer", group.segment, seconds(20));
    ASSERT_EQ(static_cast<bool>(received), asks_for_it);
    if (received) {
      EXPECT_EQ(file_of(received->get()), file_of(group.block.fd()));
    } else {
      EXPECT_EQ(received.error().message, "get the buffer of rank 1: it sent 'nccl id' instead");
    }
  })));
}

}  // namespace
}  // namespace plimsoll
