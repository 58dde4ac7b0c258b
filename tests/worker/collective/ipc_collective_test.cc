#include "worker/collective/ipc_collective.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/host_runtime.h"
#include "kernels/cuda/ipc_layout.cuh"
#include "shared/base/shared_block.h"
#include "tests/kernels/stored_matrix.h"
#include "tests/support/run_ranks.h"
#include "tests/worker/collective/ipc_sockets.h"
#include "worker/collective/shm_collective.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kCols = 64;
constexpr Bytes kSmall = cuda::kIpcFlagBytes + 256 + 2 * 4096;  // of 128 pairs of 2 ranks

class Group {
 public:
  explicit Group(int ranks)
      : block_(std::move(*SharedBlock::create("test", replica_segment_bytes({.ranks = ranks})))),
        segment_(*init_replica_segment(block_.bytes(), {.ranks = ranks})),
        sockets_(connect_ranks(ranks)) {}

  const ReplicaSegment& segment() const { return segment_; }
  Result<std::unique_ptr<Collective>> join(int rank, cuda::DeviceRuntime& runtime,
                                           Duration deadline = seconds(20)) {
    ShmCollectiveOptions options;
    options.rank = rank;
    return make_ipc_collective({.segment = segment_,
                                .segment_memory = block_.bytes(),
                                .rank = rank,
                                .host = TRY(make_shm_collective(segment_, options)),
                                .runtime = &runtime,
                                .sockets = std::move(sockets_[static_cast<std::size_t>(rank)]),
                                .buffer_bytes = kSmall,
                                .deadline = deadline});
  }

 private:
  SharedBlock block_;
  ReplicaSegment segment_;
  std::vector<PeerFds> sockets_;
};

std::unique_ptr<cuda::DeviceRuntime> make_runtime() {
  return cuda::make_host_runtime({.memory = 8 * kMiB, .seed = 2, .spin_deadline = seconds(120)});
}

std::vector<double> partial_of(int rank, std::int64_t count) {
  std::vector<double> values;
  for (const float value : random_floats(count, static_cast<std::uint32_t>(rank) + 1)) {
    values.push_back(static_cast<double>(value) / 3);
  }
  return values;
}

// Adds up a few messages and gathers something, with recordings of them too.
void add_up(Collective& collective, cuda::DeviceRuntime& runtime) {
  const int ranks = collective.size();
  for (const std::int64_t rows : {1, 5, 17}) {  // 32, 160 and 544 pairs: up to five calls each
    const std::int64_t count = rows * kCols;
    std::vector<double> partial = partial_of(collective.rank(), count);
    std::vector<float> sum = random_floats(count, 99);
    std::vector<float> want = sum;
    const auto add = [&] {
      ASSERT_TRUE(collective.all_reduce_add(sums_view(partial.data(), rows, kCols),
                                            f32_view(sum.data(), rows, kCols)));
    };
    add();
    ASSERT_TRUE(runtime.begin_recording());
    add();
    const auto recording = runtime.end_recording();
    ASSERT_TRUE(recording);
    runtime.replay(*recording);
    runtime.replay(*recording);
    ASSERT_TRUE(runtime.synchronize());
    std::vector<double> all_partials = partial_of(0, count);
    for (int r = 1; r < ranks; ++r) {
      const std::vector<double> part = partial_of(r, count);
      for (std::size_t i = 0; i < part.size(); ++i) all_partials[i] += part[i];
    }
    for (std::size_t i = 0; i < 3 * want.size(); ++i) {
      float& value = want[i % want.size()];
      value = static_cast<float>(static_cast<double>(value) + all_partials[i % want.size()]);
    }
    ASSERT_EQ(sum, want) << "rank " << collective.rank() << ", " << rows << " rows";
    const std::vector<std::int64_t> cols(static_cast<std::size_t>(ranks), kCols);
    std::vector<float> all(static_cast<std::size_t>(count * ranks));
    ASSERT_TRUE(collective.gather(f32_view(sum.data(), rows, kCols), cols,
                                  f32_view(all.data(), rows, kCols * ranks)));
    if (collective.rank() != 0) continue;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (int r = 0; r < ranks; ++r) {
        ASSERT_EQ(std::memcmp(all.data() + (row * ranks + r) * kCols, sum.data() + row * kCols,
                              kCols * sizeof(float)),
                  0)
            << "rank " << r << " has other bits in row " << row << " of " << rows;
      }
    }
  }
}

TEST(IpcCollective, AllRanksHaveTheSameSumsOfMessagesLongerThanTheBufferAndOfRecordings) {
  for (const int ranks : {2, 3}) {
    Group group(ranks);
    EXPECT_TRUE(all_passed(run_ranks(ranks, [&](int rank) {
      const auto runtime = make_runtime();
      const auto collective = group.join(rank, *runtime);
      ASSERT_TRUE(collective) << collective.error().message;
      EXPECT_TRUE((*collective)->is_on_device());
      add_up(**collective, *runtime);
      ASSERT_TRUE((*collective)->barrier());
    })));
  }
}

TEST(IpcCollective, HasTheBitsOfTheSharedMemoryCollective) {
  Group group(2);
  Group host(2);
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    const auto runtime = make_runtime();
    const auto ipc = group.join(rank, *runtime);
    ASSERT_TRUE(ipc) << ipc.error().message;
    ShmCollectiveOptions options;
    options.rank = rank;
    const auto shm = make_shm_collective(host.segment(), options);
    ASSERT_TRUE(shm);
    std::vector<double> partial = partial_of(rank, 7 * kCols);
    std::vector<float> got = random_floats(7 * kCols, 99);
    std::vector<float> want = got;
    const SumsView sums = sums_view(partial.data(), 7, kCols);
    ASSERT_TRUE((*ipc)->all_reduce_add(sums, f32_view(got.data(), 7, kCols)));
    ASSERT_TRUE(runtime->synchronize());
    ASSERT_TRUE((*shm)->all_reduce_add(sums, f32_view(want.data(), 7, kCols)));
    EXPECT_EQ(got, want);
  })));
}

TEST(IpcCollective, ARankThatNeverJoinsACallIsNamedAndTheGroupAborted) {
  Group group(2);
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    const auto runtime = make_runtime();
    const auto collective = group.join(rank, *runtime, milliseconds(rank == 0 ? 200 : 20'000));
    ASSERT_TRUE(collective) << collective.error().message;
    if (rank == 1) {
      // Comes to nothing else, and learns of it.
      const Status met = (*collective)->barrier();
      ASSERT_FALSE(met);
      EXPECT_NE(met.error().message.find("rank 1 did not join it"), std::string::npos)
          << met.error().message;
      return;
    }
    std::vector<double> partial(kCols);
    std::vector<float> sum(kCols);
    for (int call = 0; call < 3; ++call) {
      ASSERT_TRUE((*collective)
                      ->all_reduce_add(sums_view(partial.data(), 1, kCols),
                                       f32_view(sum.data(), 1, kCols)));
    }
    ASSERT_TRUE(runtime->synchronize());
    const Status met = (*collective)->barrier();
    ASSERT_FALSE(met);
    EXPECT_EQ(met.error().code, Code::timed_out);
    EXPECT_NE(met.error().message.find("all_reduce_add 1 on rank 0: rank 1 did not join it"),
              std::string::npos)
        << met.error().message;
  })));
}

TEST(IpcCollective, AnAbortOfTheSegmentEndsWhatWaitsOnTheDevice) {
  Group group(2);
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    const auto runtime = make_runtime();
    const auto collective = group.join(rank, *runtime);
    ASSERT_TRUE(collective) << collective.error().message;
    if (rank == 1) {
      (*collective)->abort("rank 1 died of signal 9");
      return;
    }
    std::vector<double> partial(kCols);
    std::vector<float> sum(kCols);
    // It may know before it calls.
    (void)(*collective)
        ->all_reduce_add(sums_view(partial.data(), 1, kCols), f32_view(sum.data(), 1, kCols));
    ASSERT_TRUE(runtime->synchronize());
    const Status met = (*collective)->barrier();
    ASSERT_FALSE(met);
    EXPECT_EQ(met.error().code, Code::unavailable);
    EXPECT_NE(met.error().message.find("rank 1 died of signal 9"), std::string::npos)
        << met.error().message;
  })));
}

TEST(IpcCollective, MoreRanksThanItsBuffersHaveFlagsForAreRefused) {
  Group group(9);
  const auto runtime = make_runtime();
  const auto collective = group.join(0, *runtime);
  ASSERT_FALSE(collective);
  EXPECT_NE(collective.error().message.find("at most 8 ranks"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
