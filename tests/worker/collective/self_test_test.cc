#include "worker/collective/self_test.h"

#include <array>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/shared_block.h"
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
  OffByOne(Collective& whole, bool is_bad) : whole_(whole), is_bad_(is_bad) {}
  int rank() const override { return whole_.rank(); }
  int size() const override { return whole_.size(); }
  Status all_reduce_add(SumsView partial, TensorView accumulate) override {
    TRY(whole_.all_reduce_add(partial, accumulate));
    if (is_bad_ && in_use_ == "bad" && partial.rows * partial.cols > 200) {
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

}  // namespace
}  // namespace plimsoll
