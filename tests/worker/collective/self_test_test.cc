#include "worker/collective/self_test.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"
#include "shared/base/shared_block.h"
#include "shared/memory/collective_bytes.h"
#include "tests/kernels/cuda/altered_runtime.h"
#include "tests/support/run_ranks.h"
#include "tests/worker/collective/ipc_sockets.h"
#include "worker/collective/ipc_collective.h"
#include "worker/collective/shm_collective.h"

namespace plimsoll {
namespace {

constexpr SelfTestSetup kSetup = {.cols = 64, .rows_max = 512, .seed = 7};

class Group {
 public:
  explicit Group(int ranks)
      : shape_{.ranks = ranks, .slot_floats = 4096, .ring_bytes = 1024, .generation = 1},
        block_(std::move(*SharedBlock::create("test", replica_segment_bytes(shape_)))),
        segment_(*init_replica_segment(block_.bytes(), shape_)) {}
  int ranks() const { return shape_.ranks; }
  std::unique_ptr<Collective> join(int rank) const {
    return std::move(*make_shm_collective(segment_, {rank, false, seconds(20)}));
  }

 private:
  ReplicaSegmentShape shape_;
  SharedBlock block_;
  ReplicaSegment segment_;
};

// As threads, each with a collective of its own.
void run(const Group& group, const std::function<void(int, Collective&)>& rank_main) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.ranks(); ++rank) {
    threads.emplace_back([&, rank] { rank_main(rank, *group.join(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SelfTest, TriesTheSizesThatAModelUsesAndNoLargerOnes) {
  EXPECT_EQ(self_test_rows({.cols = 576, .rows_max = 512}),
            (std::vector<std::int64_t>{1, 4, 16, 64, 256, 455}));
  EXPECT_EQ(self_test_rows({.cols = 576, .rows_max = 16}), (std::vector<std::int64_t>{1, 4, 16}));
  EXPECT_EQ(self_test_rows({.cols = 16'384, .rows_max = 8192}),
            (std::vector<std::int64_t>{1, 4, 16}));
  EXPECT_EQ(self_test_rows({.cols = 1 << 22, .rows_max = 8}), (std::vector<std::int64_t>{1}));
}

TEST(SelfTest, AllRanksGetTheSameFiguresAndEveryAlgorithmIsRight) {
  for (const int ranks : {2, 3}) {
    const Group group(ranks);
    std::vector<std::vector<AlgorithmTest>> of_rank(static_cast<std::size_t>(ranks));
    run(group, [&](int rank, Collective& collective) {
      auto tests = run_self_test(collective, *collective.tunable(), kSetup);
      ASSERT_TRUE(tests) << tests.error().message;
      of_rank[static_cast<std::size_t>(rank)] = std::move(*tests);
    });
    ASSERT_EQ(of_rank[0].size(), 2U);
    for (const AlgorithmTest& test : of_rank[0]) {
      ASSERT_FALSE(test.sizes.empty());
      for (const SizeTest& size : test.sizes) {
        EXPECT_EQ(size.state, TestState::right) << test.name << " at " << size.bytes;
        EXPECT_GT(size.us, 0);
      }
    }
    for (const auto& tests : of_rank) EXPECT_EQ(tests, of_rank[0]);
  }
}

// One algorithm gives values that are off by one in the last bit, on one rank, for long messages.
class OffByOne : public Collective, public Tunable {
 public:
  OffByOne(Collective& whole, bool is_bad, std::string wrong = "bad")
      : whole_(whole), is_bad_(is_bad), wrong_(std::move(wrong)) {}
  int rank() const override { return whole_.rank(); }
  int size() const override { return whole_.size(); }
  Status all_reduce_add(SumsView partial, TensorView accumulate) override {
    TRY(whole_.all_reduce_add(partial, accumulate));
    if (is_bad_ && in_use_ == wrong_ && partial.rows * partial.cols > 200) {
      auto* bits = reinterpret_cast<std::uint32_t*>(accumulate.f32());
      bits[7] ^= 1U;
    }
    return {};
  }
  Status gather(TensorView mine, std::span<const std::int64_t> cols, TensorView all) override {
    return whole_.gather(mine, cols, all);
  }
  std::string_view name() const override { return "test"; }
  Status barrier() override { return whole_.barrier(); }
  Status await_peers(Duration patience) override { return whole_.await_peers(patience); }
  void abort(std::string_view reason) override { whole_.abort(reason); }
  Tunable* tunable() override { return this; }
  std::string_view backend() const override { return "test"; }
  std::span<const std::string_view> algorithms() const override { return kNames; }
  void use(const BackendTable& table) override { in_use_ = table.rows.back().algorithm; }

 private:
  static constexpr std::array<std::string_view, 2> kNames = {"good", "bad"};
  Collective& whole_;
  bool is_bad_;
  std::string wrong_;
  std::string in_use_ = "good";
};

TEST(SelfTest, OneWrongBitOnOneRankIsSeenByAll) {
  const Group group(3);
  run(group, [&](int rank, Collective& whole) {
    OffByOne collective(whole, rank == 1);
    const auto tests = run_self_test(collective, collective, kSetup);
    ASSERT_TRUE(tests) << tests.error().message;
    const auto table = select_table("test", *tests);
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(table->rows, (std::vector<TableRow>{{kAnySize, "good"}}));
    ASSERT_EQ(table->left_out.size(), 1U);
    EXPECT_EQ(table->left_out[0].why, "wrong at 2.0 KiB: 1 of 256 values");
  });
}

TEST(SelfTest, ATableThatIsNotRightAnyMoreIsSeenByAll) {
  const Group group(2);
  run(group, [&](int rank, Collective& whole) {
    OffByOne collective(whole, rank == 1);
    const auto verified = [&](const char* algorithm) {
      return *verify_table(collective, collective, table_of_one("test", algorithm), kSetup);
    };
    EXPECT_TRUE(verified("good"));
    EXPECT_FALSE(verified("bad"));
  });
}

TEST(SelfTest, ATableOfAnotherBackendIsNotOurs) {
  const Group group(1);
  const std::unique_ptr<Collective> collective = group.join(0);
  Tunable& tunable = *collective->tunable();
  EXPECT_TRUE(is_table_of(table_of_one("shm", "two-shot"), tunable));
  EXPECT_FALSE(is_table_of(table_of_one("ipc", "two-shot"), tunable));
  EXPECT_FALSE(is_table_of(table_of_one("shm", "three-shot"), tunable));
}

TEST(SelfTest, WithoutTimeItStopsAfterTheFirstSizeOnAllRanks) {
  const Group group(2);
  SelfTestSetup setup = kSetup;
  setup.budget = Duration(0);
  run(group, [&](int, Collective& collective) {
    const auto tests = run_self_test(collective, *collective.tunable(), setup);
    ASSERT_TRUE(tests) << tests.error().message;
    EXPECT_EQ((*tests)[0].sizes.size(), 1U);
    EXPECT_TRUE(collective.barrier()) << "they still run the same calls";
  });
}

TEST(SelfTest, ADeadPeerEndsIt) {
  const Group group(2);
  run(group, [&](int rank, Collective& collective) {
    if (rank == 1) return collective.abort("rank 1 had enough");
    const auto tests = run_self_test(collective, *collective.tunable(), kSetup);
    ASSERT_FALSE(tests);
    EXPECT_NE(tests.error().message.find("rank 1 had enough"), std::string::npos);
  });
}

TEST(SelfTest, WhatVerdictsGoByIsNotTrustedWhereItIsWrong) {
  const Group group(2);
  run(group, [&](int rank, Collective& whole) {
    OffByOne collective(whole, rank == 1, "good");
    const auto tests = run_self_test(collective, collective, kSetup);
    ASSERT_FALSE(tests);
    if (rank == 0) return;  // learns of it by the abort that ends a rank
    EXPECT_EQ(tests.error().message,
              "the test collective adds up wrongly by good on rank 1: 1 of 256 values at 2.0 KiB");
    whole.abort("rank 1 failed");
  });
}

// ThreadSanitizer takes long for so many calls; it sees the kernels in ipc_collective_test.
#if !defined(__SANITIZE_THREAD__)
// --- on a device: the host executor, a process each ---

class DeviceGroup {
 public:
  static constexpr std::int64_t kRows = 5;
  static constexpr std::int64_t kCols = 64;

  explicit DeviceGroup(int ranks)
      : block_(std::move(*SharedBlock::create("test", replica_segment_bytes({.ranks = ranks})))),
        segment_(*init_replica_segment(block_.bytes(), {.ranks = ranks})),
        sockets_(connect_ranks(ranks)) {}

  struct Joined {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Collective> collective;
    SelfTestSetup setup;
  };
  Joined join(int rank, cuda::AlteredRuntime::Alter alter) {
    auto runtime = std::make_unique<cuda::AlteredRuntime>(
        cuda::make_host_runtime({.memory = 8 * kMiB, .seed = 2, .spin_deadline = seconds(120)}),
        std::move(alter));
    cuda::DeviceRuntime& device = *runtime;
    const auto place = [&](Bytes bytes) { return (*device.allocate(bytes, "test")).data(); };
    Joined joined;
    joined.setup = {.cols = kCols, .rows_max = kRows, .seed = 7, .patience = seconds(25)};
    joined.setup.device = {
        .backend = nullptr,
        .partial = sums_view(reinterpret_cast<double*>(place(kRows * kCols * 8)), kRows, kCols),
        .sum = f32_view(reinterpret_cast<float*>(place(kRows * kCols * 4)), kRows, kCols)};
    joined.backend = make_cuda_backend(std::move(runtime));
    joined.setup.device->backend = joined.backend.get();
    ShmCollectiveOptions options;
    options.rank = rank;
    auto made = make_ipc_collective({.segment = segment_,
                                     .segment_memory = block_.bytes(),
                                     .rank = rank,
                                     .host = std::move(*make_shm_collective(segment_, options)),
                                     .runtime = &device,
                                     .sockets = std::move(sockets_[static_cast<std::size_t>(rank)]),
                                     .buffer_bytes = kHostIpcBytes});
    EXPECT_TRUE(made) << made.error().message;
    joined.collective = std::move(*made);
    return joined;
  }

 private:
  SharedBlock block_;
  ReplicaSegment segment_;
  std::vector<PeerFds> sockets_;
};

void expect_right(const AlgorithmTest& test, std::size_t sizes) {
  EXPECT_EQ(test.sizes.size(), sizes) << test.name;
  for (const SizeTest& size : test.sizes) {
    EXPECT_EQ(size.state, TestState::right) << test.name << " at " << size.bytes;
    EXPECT_GT(size.us, 0);
  }
}

TEST(SelfTestOnADevice, EveryAlgorithmRunsItsKernelsAndIsRight) {
  for (const int ranks : {2, 3}) {
    DeviceGroup group(ranks);
    EXPECT_TRUE(all_passed(run_ranks(ranks, [&](int rank) {
      std::array<int, 3> launches{};
      DeviceGroup::Joined joined = group.join(rank, [&](cuda::Kernel kernel, auto&) {
        const int kind =
            static_cast<int>(kernel) - static_cast<int>(cuda::Kernel::all_reduce_one_shot);
        if (kind >= 0 && kind < 3) ++launches[static_cast<std::size_t>(kind)];
        return true;
      });
      Collective& collective = *joined.collective;
      joined.setup.budget = seconds(100);
      const auto tests = run_self_test(collective, *collective.tunable(), joined.setup);
      ASSERT_TRUE(tests) << tests.error().message;
      ASSERT_EQ(tests->size(), 3U);
      for (const AlgorithmTest& test : *tests) expect_right(test, 3);
      for (const int count : launches) EXPECT_GT(count, 30);
      ASSERT_TRUE(collective.barrier());
    })));
  }
}

// The second algorithm is not joined by rank 1, and gives up soon on rank 0.
TEST(SelfTestOnADevice, WhatHangsIsLeftOutAndTheRestGoesOn) {
  DeviceGroup group(2);
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    DeviceGroup::Joined joined =
        group.join(rank, [rank](cuda::Kernel kernel, std::vector<std::byte>& arguments) {
          if (kernel != cuda::Kernel::all_reduce_two_shot) return true;
          cuda::AllReduceArguments call;
          std::memcpy(&call, arguments.data(), sizeof call);
          call.group.deadline_ns = 20'000'000;
          std::memcpy(arguments.data(), &call, sizeof call);
          return rank == 0;
        });
    Collective& collective = *joined.collective;
    Tunable& tunable = *collective.tunable();
    joined.setup.budget = seconds(100);
    const auto tests = run_self_test(collective, tunable, joined.setup);
    ASSERT_TRUE(tests) << tests.error().message;
    expect_right((*tests)[0], 3);
    expect_right((*tests)[2], 3);
    ASSERT_EQ((*tests)[1].sizes.size(), 1U) << "it was tried again";
    EXPECT_EQ((*tests)[1].sizes[0].state, TestState::hung);
    const auto table = select_table("ipc", *tests);
    ASSERT_TRUE(table) << table.error().message;
    const auto out = std::ranges::find(table->left_out, "two-shot", &LeftOut::algorithm);
    ASSERT_NE(out, table->left_out.end());
    EXPECT_EQ(out->why, "hung at 512 B: not all ranks were done within 25.0 s");
    // A table of an earlier start that has it is found out too, and what it left goes as well.
    EXPECT_FALSE(*verify_table(collective, tunable, table_of_one("ipc", "two-shot"), joined.setup));
    EXPECT_TRUE(*verify_table(collective, tunable, *table, joined.setup));
    EXPECT_TRUE(collective.barrier()) << "the group was aborted";
  })));
}

TEST(SelfTestOnADevice, OneRankThatGivesAnothersPartIsSeenByAll) {
  DeviceGroup group(2);
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    DeviceGroup::Joined joined =
        group.join(rank, [rank](cuda::Kernel kernel, std::vector<std::byte>& arguments) {
          if (rank != 1 || kernel != cuda::Kernel::all_reduce_one_shot) return true;
          cuda::AllReduceArguments call;
          std::memcpy(&call, arguments.data(), sizeof call);
          call.partial += 2 * (call.pairs > 32 ? 1 : 0);
          std::memcpy(arguments.data(), &call, sizeof call);
          return true;
        });
    Collective& collective = *joined.collective;
    joined.setup.budget = seconds(100);
    const auto tests = run_self_test(collective, *collective.tunable(), joined.setup);
    ASSERT_TRUE(tests) << tests.error().message;
    EXPECT_EQ((*tests)[0].sizes[0].state, TestState::right);
    EXPECT_EQ((*tests)[0].sizes[1].state, TestState::wrong);
    EXPECT_EQ((*tests)[0].sizes[1].wrong, 256);
    expect_right((*tests)[1], 3);
    ASSERT_TRUE(collective.barrier());
  })));
}
#endif

}  // namespace
}  // namespace plimsoll
