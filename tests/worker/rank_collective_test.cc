#include "worker/rank_collective.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"
#include "shared/base/shared_block.h"
#include "shared/memory/collective_bytes.h"
#include "tests/support/run_ranks.h"
#include "tests/worker/collective/ipc_sockets.h"

namespace plimsoll {
namespace {

struct Group {
  explicit Group(int ranks)
      : block(std::move(*SharedBlock::create("test", replica_segment_bytes({.ranks = ranks})))),
        segment(*init_replica_segment(block.bytes(), {.ranks = ranks})),
        sockets(connect_ranks(ranks)) {}

  // As the daemon gives them: without an empty place.
  RankCollectiveParts parts_of(int rank) {
    PeerFds& own = sockets[static_cast<std::size_t>(rank)];
    own.erase(own.begin() + rank);
    return {.launched = &launched,
            .segment = segment,
            .segment_memory = block.bytes(),
            .rank = rank,
            .sockets = std::move(own)};
  }

  LaunchedRank launched;
  SharedBlock block;
  ReplicaSegment segment;
  std::vector<PeerFds> sockets;
};

TEST(RankCollective, CpuRanksShareTheirSegment) {
  Group alone(1);
  const auto single = make_rank_collective(alone.parts_of(0));
  ASSERT_TRUE(single) << single.error().message;
  EXPECT_EQ(single->collective->size(), 1);
  EXPECT_EQ(single->memory, 0);
  Group group(3);
  const auto made = make_rank_collective(group.parts_of(1));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->collective->name(), "shm");
  EXPECT_EQ(made->collective->rank(), 1);
  EXPECT_EQ(made->memory, ceil_div(std::ssize(group.block.bytes()), Bytes{3}));
}

TEST(RankCollective, RanksWithCudaKernelsShareBuffersOnTheirDevicesAndFuseUnlessTold) {
  for (const char* const wanted : {"auto", "ipc"}) {
    Group group(3);
    group.launched.on_host_cuda = true;
    group.launched.options.collective = wanted;
    EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) {
      auto runtime =
          cuda::make_host_runtime({.memory = 8 * kMiB, .seed = 2, .spin_deadline = seconds(120)});
      RankCollectiveParts parts = group.parts_of(rank);
      RankBackend on{.backend = nullptr, .runtime = runtime.get()};
      on.backend = make_cuda_backend(std::move(runtime));
      parts.on = &on;
      const auto made = make_rank_collective(std::move(parts));
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->collective->name(), std::string(wanted) == "ipc" ? "ipc" : "fused");
      const Bytes segment = ceil_div(std::ssize(group.block.bytes()), Bytes{3});
      EXPECT_GE(made->memory, segment + kHostIpcBytes);
      EXPECT_LE(made->memory, segment + kHostIpcBytes + 4 * kKiB);
      ASSERT_TRUE(made->collective->barrier());
    })));
  }
}

TEST(RankCollective, WhatADeviceDoesNotHaveIsRefused) {
  for (const char* const wanted : {"nccl", "nccl_symmetric"}) {
    Group group(2);
    group.launched.on_host_cuda = true;
    group.launched.options.collective = wanted;
    auto runtime = cuda::make_host_runtime({.memory = 8 * kMiB});
    RankCollectiveParts parts = group.parts_of(0);
    RankBackend on{.backend = nullptr, .runtime = runtime.get()};
    on.backend = make_cuda_backend(std::move(runtime));
    parts.on = &on;
    const auto made = make_rank_collective(std::move(parts));
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Code::invalid);
    EXPECT_NE(made.error().message.find(wanted), std::string::npos) << made.error().message;
  }
}

}  // namespace
}  // namespace plimsoll
