// The collective over NCCL's functions, by the libraries of tests/drivers in the place of NVIDIA's.
#include "worker/collective/nccl_collective.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#if !defined(__SANITIZE_THREAD__)
#include "kernels/cuda/driver_runtime.h"
#include "kernels/cuda/host_runtime.h"
#include "shared/base/shared_block.h"
#include "tests/kernels/cuda/driver_library.h"
#include "tests/kernels/stored_matrix.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temp_folder.h"
#include "tests/worker/collective/ipc_sockets.h"
#include "worker/collective/shm_collective.h"

namespace plimsoll {
namespace {

constexpr const char* kTestNccl = PLIMSOLL_TEST_DRIVERS "/libnccl.so.2";
constexpr std::int64_t kCols = 64;

class Group {
 public:
  explicit Group(int ranks)
      : block_(std::move(*SharedBlock::create("test", replica_segment_bytes({.ranks = ranks})))),
        segment_(*init_replica_segment(block_.bytes(), {.ranks = ranks})),
        sockets_(connect_ranks(ranks)) {}

  ReplicaSegment& segment() { return segment_; }
  Result<std::unique_ptr<Collective>> join(int rank, cuda::DeviceRuntime& runtime,
                                           Duration deadline = seconds(20)) {
    ShmCollectiveOptions options;
    options.rank = rank;
    return make_nccl_collective({.segment = segment_,
                                 .rank = rank,
                                 .host = TRY(make_shm_collective(segment_, options)),
                                 .runtime = &runtime,
                                 .sockets = std::move(sockets_[static_cast<std::size_t>(rank)]),
                                 .library = kTestNccl,
                                 .deadline = deadline});
  }

 private:
  SharedBlock block_;
  ReplicaSegment segment_;
  std::vector<PeerFds> sockets_;
};

std::unique_ptr<cuda::DeviceRuntime> make_runtime() {
  auto runtime = cuda::make_driver_runtime(cuda::TestDriver::options());
  EXPECT_TRUE(runtime) << runtime.error().message;
  return std::move(*runtime);
}

std::vector<double> partial_of(int rank, std::int64_t count) {
  std::vector<double> values;
  for (const float value : random_floats(count, static_cast<std::uint32_t>(rank) + 1)) {
    values.push_back(static_cast<double>(value) / 3);
  }
  return values;
}

// Two matrices in device memory: f64 sums and what they are added to.
struct Tensors {
  Tensors(cuda::DeviceRuntime& on, int rank, std::int64_t rows) : runtime(on), count(rows * kCols) {
    partial = partial_of(rank, count);
    sum = random_floats(count, 99);
    const auto place = [&](Bytes bytes) { return runtime.allocate(bytes, "tensors")->data(); };
    auto* sums = reinterpret_cast<double*>(place(count * 8));
    runtime.copy_in(sums, partial.data(), partial.size() * sizeof(double));
    auto* to = reinterpret_cast<float*>(place(count * 4));
    runtime.copy_in(to, sum.data(), sum.size() * sizeof(float));
    EXPECT_TRUE(runtime.synchronize());  // the copies read from here
    sums_of = sums_view(sums, rows, kCols);
    added_to = f32_view(to, rows, kCols);
  }
  Status add(Collective& collective) { return collective.all_reduce_add(sums_of, added_to); }
  std::vector<float> read() {
    std::vector<float> values(sum.size());
    runtime.copy_out(values.data(), added_to.data, values.size() * sizeof(float));
    EXPECT_TRUE(runtime.synchronize());
    return values;
  }

  cuda::DeviceRuntime& runtime;
  std::int64_t count;
  std::vector<double> partial;
  std::vector<float> sum;
  SumsView sums_of;
  TensorView added_to;
};

TEST(DriverNccl, AllRanksHaveTheSumRoundedOnce) {
  Group group(3);
  EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) {
    const auto runtime = make_runtime();
    const auto collective = group.join(rank, *runtime);
    ASSERT_TRUE(collective) << collective.error().message;
    EXPECT_EQ((*collective)->name(), "nccl");
    for (const std::int64_t rows : {1, 80}) {  // more than one exchange of the library
      std::vector<float> want = random_floats(rows * kCols, 99);
      Tensors tensors(*runtime, rank, rows);
      std::vector<double> all(want.size());
      for (int r = 0; r < 3; ++r) {
        const std::vector<double> part = partial_of(r, rows * kCols);
        for (std::size_t i = 0; i < all.size(); ++i) all[i] += part[i];
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        want[i] = static_cast<float>(static_cast<double>(want[i]) + all[i]);
      }
      ASSERT_TRUE(tensors.add(**collective));
      EXPECT_EQ(tensors.read(), want);
      ASSERT_TRUE((*collective)->barrier());
    }
  })));
}

TEST(DriverNccl, ARankThatNeverComesEndsTheStartAtTheDeadline) {
  Group group(2);
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    if (rank == 1) return;
    const auto runtime = make_runtime();
    // The deadline is not that of the id, which waits for the other process to be there.
    const auto collective = group.join(0, *runtime, milliseconds(300));
    ASSERT_FALSE(collective);
    EXPECT_EQ(collective.error().code, Code::timed_out);
    EXPECT_NE(collective.error().message.find("start NCCL 2.28.9 over 2 ranks on rank 0: not all "
                                              "ranks joined"),
              std::string::npos)
        << collective.error().message;
    EXPECT_TRUE(group.segment().aborted());
  })));
}

TEST(DriverNccl, AnAbortOfTheSegmentEndsACallThatAPeerDoesNotJoin) {
  Group group(2);
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    const auto runtime = make_runtime();
    const auto collective = group.join(rank, *runtime);
    ASSERT_TRUE(collective) << collective.error().message;
    if (rank == 1) {
      group.segment().abort("rank 1 died of signal 9");
      return;
    }
    Tensors tensors(*runtime, 0, 1);
    const Status added = tensors.add(**collective);
    if (added) (void)tensors.read();  // ends
    const Status met = (*collective)->barrier();
    ASSERT_FALSE(met);
    EXPECT_NE(met.error().message.find("rank 1 died of signal 9"), std::string::npos)
        << met.error().message;
    EXPECT_FALSE(tensors.add(**collective));
  })));
}

// Its abort, which would wait for them for ever, ends all the same: of a rank that leaves in peace,
// and of one whose peer has died while its recording runs.
TEST(DriverNccl, RecordingsWithItAddUpAndAreGoneBeforeItsAbort) {
  for (const bool peer_dies : {false, true}) {
    Group group(2);
    EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
      const auto runtime = make_runtime();
      auto collective = group.join(rank, *runtime);
      ASSERT_TRUE(collective) << collective.error().message;
      EXPECT_TRUE((*collective)->is_on_device());
      Tensors tensors(*runtime, rank, 1);
      ASSERT_TRUE(tensors.add(**collective));
      const std::vector<float> once = tensors.read();
      runtime->copy_in(tensors.added_to.data, tensors.sum.data(),
                       tensors.sum.size() * sizeof(float));
      runtime->copy_in(tensors.sums_of.data, tensors.partial.data(),
                       tensors.partial.size() * sizeof(double));
      ASSERT_TRUE(runtime->begin_recording());
      ASSERT_TRUE(tensors.add(**collective));
      const auto recording = runtime->end_recording();
      ASSERT_TRUE(recording);
      runtime->replay(*recording);
      EXPECT_EQ(tensors.read(), once);
      (void)(*collective)->barrier();  // it may see the abort that comes behind it
      if (peer_dies && rank == 1) group.segment().abort("rank 1 died of signal 9");
      if (peer_dies && rank == 0) {
        runtime->replay(*recording);
        EXPECT_TRUE(runtime->synchronize()) << "a kernel of NCCL's ends at its abort";
        EXPECT_FALSE((*collective)->barrier());
      }
      collective->reset();
    })));
  }
}

TEST(DriverNccl, AnErrorThatNcclMeetsInAReplayIsSaidInItsWords) {
  Group group(2);
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    const auto runtime = make_runtime();
    const auto collective = group.join(rank, *runtime);
    ASSERT_TRUE(collective) << collective.error().message;
    if (rank == 1) {
      const Status met = (*collective)->barrier();
      EXPECT_FALSE(met);
      return;
    }
    ::setenv("FAKE_NCCL_FAIL", "ncclCommGetAsyncError 2", 1);
    const Status met = (*collective)->barrier();
    ASSERT_FALSE(met);
    EXPECT_EQ(met.error().message, "all_reduce_add: unhandled system error");
  })));
}

TEST(DriverNccl, CallsFailAtOnceWhileAnAbortOfNcclsTakesItsTime) {
  const TempFolder folder;
  const std::string go_on = (folder.path() / "go-on").string();
  Group group(2);
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    const auto runtime = make_runtime();
    if (rank == 0) ::setenv("FAKE_NCCL_ABORT_WAITS", go_on.c_str(), 1);
    const auto collective = group.join(rank, *runtime);
    ASSERT_TRUE(collective) << collective.error().message;
    (void)(*collective)->barrier();  // it may see the abort that comes behind it
    if (rank == 1) {
      group.segment().abort("rank 1 died of signal 9");
      return;
    }
    const TimePoint until = now() + seconds(20);
    while (!std::filesystem::exists(go_on + ".begun") && now() < until) std::this_thread::yield();
    const Status met = (*collective)->barrier();
    ASSERT_FALSE(met);
    EXPECT_NE(met.error().message.find("rank 1 died of signal 9"), std::string::npos)
        << met.error().message;
    EXPECT_TRUE(std::filesystem::exists(go_on + ".begun"));
    EXPECT_FALSE(std::filesystem::exists(go_on + ".ended")) << "it has waited for the abort";
    std::ofstream{go_on};
  })));
}

// NCCL is asked every millisecond whether it has taken a call; aborted meanwhile, it is freed.
TEST(DriverNccl, ACommunicatorThatWasAbortedIsNotAskedAnyMore) {
  Group group(2);
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    const auto runtime = make_runtime();
    const auto collective = group.join(rank, *runtime);
    ASSERT_TRUE(collective) << collective.error().message;
    // Before the abort may come, whose thread looks at variables too.
    if (rank == 0) ::setenv("FAKE_NCCL_FAIL", "ncclCommGetAsyncError 7", 1);
    (void)(*collective)->barrier();  // it may see the abort that comes behind it
    if (rank == 1) {
      group.segment().abort("rank 1 died of signal 9");
      return;
    }
    Tensors tensors(*runtime, 0, 1);
    const Status added = tensors.add(**collective);
    EXPECT_TRUE(runtime->synchronize()) << "what was taken all the same ends";
    ASSERT_FALSE(added);
    EXPECT_NE(added.error().message.find("rank 1 died of signal 9"), std::string::npos)
        << added.error().message;
  })));
}

TEST(DriverNccl, WhatNcclFailsByIsSaidInItsWords) {
  const cuda::ScopedVariable fails("FAKE_NCCL_FAIL", "ncclGetUniqueId 2");
  Group group(2);
  const auto runtime = make_runtime();
  const auto collective = group.join(0, *runtime);
  ASSERT_FALSE(collective);
  EXPECT_EQ(collective.error().code, Code::unavailable);
  EXPECT_EQ(collective.error().message, "make NCCL's id: unhandled system error");
}

TEST(DriverNccl, AVersionThatIsTooOldIsNamed) {
  const cuda::ScopedVariable old("FAKE_NCCL_VERSION", "21602");
  Group group(2);
  const auto runtime = make_runtime();
  const auto collective = group.join(0, *runtime);
  ASSERT_FALSE(collective);
  EXPECT_NE(collective.error().message.find("it is version 2.16.2"), std::string::npos)
      << collective.error().message;
}

TEST(DriverNccl, TheHostExecutorHasNone) {
  Group group(2);
  const auto runtime = cuda::make_host_runtime({.memory = kMiB});
  const auto collective = group.join(0, *runtime);
  ASSERT_FALSE(collective);
  EXPECT_EQ(collective.error().code, Code::invalid);
}

}  // namespace
}  // namespace plimsoll
#endif
