#include "worker/collective/shm_collective.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/shared_block.h"
#include "tests/support/run_ranks.h"
#include "worker/collective/tunable.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t kSeed = 2025;
#ifdef __SANITIZE_THREAD__
constexpr std::uint32_t kSlowness = 8;
#else
constexpr std::uint32_t kSlowness = 1;
#endif

// The same values on every rank that asks for them.
std::vector<float> values_of(int rank, std::uint32_t round, std::int64_t count) {
  std::mt19937 random(kSeed + round * 64 + static_cast<std::uint32_t>(rank));
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = static_cast<float>(random()) * 0x1p-20F - 2048;
  }
  return values;
}

// The same with digits that a float does not hold.
std::vector<double> sums_of(int rank, std::uint32_t round, std::int64_t count) {
  const std::vector<float> values = values_of(rank, round, count);
  std::vector<double> sums(values.begin(), values.end());
  for (double& sum : sums) sum *= 1.0 / 3;
  return sums;
}

class Group {
 public:
  explicit Group(const ReplicaSegmentShape& shape)
      : block_(std::move(*SharedBlock::create("test", replica_segment_bytes(shape)))),
        segment_(*init_replica_segment(block_.bytes(), shape)) {}

  ReplicaSegment segment() const { return segment_; }
  std::unique_ptr<Collective> join(int rank, bool spin = false,
                                   Duration deadline = seconds(20)) const {
    return std::move(*make_shm_collective(segment_, {rank, spin, deadline}));
  }

 private:
  SharedBlock block_;
  ReplicaSegment segment_;
};

// Sums of random matrices against a reference, on one rank.
void reduce_many(Collective& collective, std::uint32_t rounds) {
  for (std::uint32_t round = 0; round < rounds / kSlowness; ++round) {
    const std::int64_t rows = 1 + round % 5;
    const std::int64_t cols = std::int64_t{1} << (round % 10);
    std::vector<float> expected = values_of(63, round, rows * cols);
    std::vector<float> accumulate = expected;
    std::vector<double> sum = sums_of(0, round, rows * cols);
    for (int rank = 1; rank < collective.size(); ++rank) {
      const std::vector<double> part = sums_of(rank, round, rows * cols);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      expected[i] = static_cast<float>(static_cast<double>(expected[i]) + sum[i]);
    }
    std::vector<double> mine = sums_of(collective.rank(), round, rows * cols);
    Status status = collective.all_reduce_add(sums_view(mine.data(), rows, cols),
                                              f32_view(accumulate.data(), rows, cols));
    ASSERT_TRUE(status.has_value()) << status.error().message;
    ASSERT_EQ(std::memcmp(accumulate.data(), expected.data(), expected.size() * sizeof(float)), 0)
        << "round " << round << " of seed " << kSeed;
  }
}

TEST(ShmCollective, SumsInRankOrderWithTheSameBitsOnEveryRank) {
  for (const int ranks : {2, 3, 4}) {
    // Slots of 300 floats: some messages go in several chunks.
    const Group group({ranks, 300, 1024, 1});
    EXPECT_TRUE(
        all_passed(run_ranks(ranks, [&](int rank) { reduce_many(*group.join(rank), 2000); })))
        << ranks << " ranks";
  }
}

TEST(ShmCollective, TwoShotGivesTheSameBits) {
  for (const int ranks : {2, 3, 4}) {
    // Slots of 300 floats: some messages go in several chunks, and chunks have shares of nothing.
    const Group group({ranks, 300, 1024, 1});
    EXPECT_TRUE(all_passed(run_ranks(ranks,
                                     [&](int rank) {
                                       const auto collective = group.join(rank);
                                       collective->tunable()->use(table_of_one("shm", "two-shot"));
                                       reduce_many(*collective, 1000);
                                     })))
        << ranks << " ranks";
  }
}

TEST(ShmCollective, ATableChangesTheWayByTheSizeOfAMessage) {
  const Group group({3, kSlotFloatsDefault, 1024, 1});
  EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) {
    const auto collective = group.join(rank);
    collective->tunable()->use(
        {.backend = "shm",
         .rows = {{256, "two-shot"}, {2048, "one-shot"}, {kAnySize, "two-shot"}},
         .left_out = {},
         .tests = {}});
    reduce_many(*collective, 500);
    const std::uint32_t before = group.segment().line(rank).round.load();
    std::vector<double> mine(1024);
    std::vector<float> sum(1024);
    for (const std::int64_t cols : {32, 256, 1024}) {
      ASSERT_TRUE(
          collective->all_reduce_add(sums_view(mine.data(), 1, cols), f32_view(sum.data(), 1, cols))
              .has_value());
    }
    EXPECT_EQ(group.segment().line(rank).round.load() - before, 2U + 1U + 2U);
  })));
}

TEST(ShmCollective, RanksThatGoDifferentWaysAbort) {
  const Group group({2, 300, 1024, 1});
  EXPECT_TRUE(all_passed(run_ranks(2, [&](int rank) {
    const auto collective = group.join(rank);
    if (rank == 1) collective->tunable()->use(table_of_one("shm", "two-shot"));
    std::vector<double> mine(8);
    std::vector<float> sum(8);
    const Status status =
        collective->all_reduce_add(sums_view(mine.data(), 1, 8), f32_view(sum.data(), 1, 8));
    ASSERT_FALSE(status.has_value());
    EXPECT_NE(status.error().message.find("shares"), std::string::npos) << status.error().message;
  })));
}

TEST(ShmCollective, SumsWhileSpinningToo) {
  const Group group({2, kSlotFloatsDefault, 1024, 1});
  EXPECT_TRUE(
      all_passed(run_ranks(2, [&](int rank) { reduce_many(*group.join(rank, true), 3000); })));
}

TEST(ShmCollective, SumsMatricesWhoseRowsAreSpaced) {
  const Group group({3, 50, 1024, 1});
  EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) {
    const std::unique_ptr<Collective> collective = group.join(rank);
    for (const std::string_view algorithm : collective->tunable()->algorithms()) {
      collective->tunable()->use(table_of_one("shm", std::string(algorithm)));
      std::vector<double> partial(7 * 40, static_cast<float>(1 << rank));
      std::vector<float> accumulate(7 * 33, 100);
      ASSERT_TRUE(collective
                      ->all_reduce_add({partial.data(), 7, 31, 40},
                                       {accumulate.data(), DType::f32, 7, 31, 33})
                      .has_value());
      for (std::size_t i = 0; i < accumulate.size(); ++i) {
        ASSERT_EQ(accumulate[i], i % 33 < 31 ? 107 : 100) << algorithm;
      }
    }
  })));
}

TEST(ShmCollective, GathersColumnsOfDifferentLengthsToRankZero) {
  const std::vector<std::int64_t> cols = {100, 0, 257, 31};
  const std::int64_t total = std::accumulate(cols.begin(), cols.end(), std::int64_t{0});
  const Group group({4, 64, 1024, 1});
  EXPECT_TRUE(all_passed(run_ranks(4, [&](int rank) {
    const std::unique_ptr<Collective> collective = group.join(rank);
    for (std::uint32_t round = 0; round < 300; ++round) {
      const std::int64_t rows = round % 4;  // 0 rows too
      const auto own = cols[static_cast<std::size_t>(rank)];
      std::vector<float> mine = values_of(rank, round, rows * own);
      std::vector<float> all(static_cast<std::size_t>(rank == 0 ? rows * total : 0));
      Status status = collective->gather(f32_view(mine.data(), rows, own), cols,
                                         f32_view(all.data(), rows, total));
      ASSERT_TRUE(status.has_value()) << status.error().message;
      if (rank != 0) continue;
      std::int64_t begin = 0;
      for (int peer = 0; peer < 4; ++peer) {
        const std::int64_t width = cols[static_cast<std::size_t>(peer)];
        const std::vector<float> part = values_of(peer, round, rows * width);
        for (std::int64_t row = 0; row < rows; ++row) {
          ASSERT_TRUE(std::equal(part.begin() + row * width, part.begin() + (row + 1) * width,
                                 all.begin() + row * total + begin))
              << "rank " << peer << " row " << row << " of round " << round;
        }
        begin += width;
      }
    }
    ASSERT_TRUE(collective->barrier().has_value());
  })));
}

TEST(ShmCollective, MixesCallsWithoutLosingStep) {
  const std::vector<std::int64_t> cols = {9, 9, 9};
  const Group group({3, 64, 1024, 1});
  EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) {
    const std::unique_ptr<Collective> collective = group.join(rank);
    for (std::uint32_t round = 0; round < 500; ++round) {
      std::vector<double> mine(9, rank + 1);
      std::vector<float> sum(9, static_cast<float>(round));
      std::vector<float> all(27);
      ASSERT_TRUE(
          collective->all_reduce_add(sums_view(mine.data(), 1, 9), f32_view(sum.data(), 1, 9))
              .has_value());
      ASSERT_EQ(sum[8], static_cast<float>(round + 6));
      ASSERT_TRUE(collective->gather(f32_view(sum.data(), 1, 9), cols, f32_view(all.data(), 1, 27))
                      .has_value());
      if (rank == 0) {
        ASSERT_EQ(all[26], sum[8]);
      }
      if (round % 7 == 0) {
        ASSERT_TRUE(collective->barrier().has_value());
      }
    }
  })));
}

TEST(ShmCollective, WorksWithMoreRanksThanCores) {
  const Group group({8, 4096, 1024, 1});
  EXPECT_TRUE(all_passed(run_ranks(8, [&](int rank) { reduce_many(*group.join(rank), 200); })));
}

TEST(ShmCollective, CountersWrapWithoutLosingStep) {
  const Group group({3, 300, 1024, 1});
  for (int rank = 0; rank < 3; ++rank) group.segment().line(rank).round.store(0xFFFFFFF0U);
  EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) { reduce_many(*group.join(rank), 100); })));
}

std::uint32_t sleepers(const ReplicaSegment& segment) {
  std::uint32_t count = 0;
  for (int rank = 0; rank < segment.ranks(); ++rank) {
    count += segment.line(rank).round_sleepers.load();
  }
  return count;
}

// How long the slowest of three sleeping ranks took to come back after an abort by the fourth.
Duration abort_latency() {
  const Group group({4, 64, 1024, 1});
  // The ranks' times are passed on in the ring's memory, which is not used otherwise.
  const auto times = reinterpret_cast<TimePoint*>(group.segment().ring_memory().data());
  EXPECT_TRUE(all_passed(run_ranks(4, [&](int rank) {
    const std::unique_ptr<Collective> collective = group.join(rank);
    if (rank == 3) {
      const TimePoint give_up = now() + seconds(10);
      while (sleepers(group.segment()) < 3 && now() < give_up) std::this_thread::yield();
      times[3] = now();
      collective->abort("rank 3 had enough");
      return;
    }
    Status status = collective->barrier();
    times[rank] = now();
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, Code::unavailable);
    EXPECT_NE(status.error().message.find("rank 3 had enough"), std::string::npos)
        << status.error().message;
  })));
  return *std::max_element(times, times + 3) - times[3];
}

TEST(ShmCollective, AnAbortFreesEverySleeperSoonWithItsReason) {
  // Without being woken they would look at the abort word after 100 ms. Other work on the machine
  // may hold up any one try.
  constexpr Duration kWoken = milliseconds(60);
  Duration best = seconds(60);
  for (int attempt = 0; attempt < 10 && best >= kWoken; ++attempt) {
    best = std::min(best, abort_latency());
  }
  EXPECT_LT(best, kWoken);
}

TEST(ShmCollective, AnAbortFreesSpinnersToo) {
  const Group group({3, 64, 1024, 1});
  EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) {
    const std::unique_ptr<Collective> collective = group.join(rank, true);
    if (rank == 2) {
      collective->abort("rank 2 had enough");
      return;
    }
    Status status = collective->barrier();
    ASSERT_FALSE(status.has_value());
    EXPECT_NE(status.error().message.find("rank 2 had enough"), std::string::npos)
        << status.error().message;
  })));
}

TEST(ShmCollective, NothingWorksAfterAnAbort) {
  const Group group({2, 64, 1024, 1});
  const std::unique_ptr<Collective> collective = group.join(0);
  collective->abort("enough");
  std::vector<float> x(4);
  std::vector<float> y(4);
  std::vector<double> sums(4);
  const std::int64_t cols[] = {2, 0};
  for (const Status& status :
       {collective->barrier(),
        collective->all_reduce_add(sums_view(sums.data(), 2, 2), f32_view(y.data(), 2, 2)),
        collective->gather(f32_view(x.data(), 2, 2), cols, f32_view(y.data(), 2, 2))}) {
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, Code::unavailable);
  }
}

// Runs one call a rank, expects each to fail, and its message to hold every one of `parts`.
void expect_divergence(const std::function<Status(Collective&)>& call,
                       const std::vector<std::string>& parts) {
  const Group group({3, 64, 1024, 1});
  EXPECT_TRUE(all_passed(run_ranks(3, [&](int rank) {
    const std::unique_ptr<Collective> collective = group.join(rank);
    Status status = call(*collective);
    // A rank that need not wait for all of its peers learns of it in its next call.
    for (int i = 0; i < 3 && status.has_value(); ++i) status = collective->barrier();
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, Code::unavailable);
    for (const std::string& part : parts) {
      EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
    }
  })));
}

TEST(ShmCollective, RanksThatCallWithOtherSizesAreToldBothCalls) {
  expect_divergence(
      [](Collective& collective) {
        std::vector<double> partial(12);
        std::vector<float> sum(12);
        const std::int64_t rows = collective.rank() == 2 ? 4 : 3;
        return collective.all_reduce_add(sums_view(partial.data(), rows, 3),
                                         f32_view(sum.data(), rows, 3));
      },
      {"in round 1", "rank 2 calls all_reduce_add [4, 3]", "calls all_reduce_add [3, 3]"});
}

TEST(ShmCollective, RanksThatCallSomethingElseAreToldBothCalls) {
  expect_divergence(
      [](Collective& collective) {
        if (collective.rank() == 1) return collective.barrier();
        const std::int64_t cols[] = {2, 2, 2};
        std::vector<float> mine(2);
        std::vector<float> all(6);
        return collective.gather(f32_view(mine.data(), 1, 2), cols, f32_view(all.data(), 1, 6));
      },
      {"in round 1", "rank 1 calls barrier", "calls gather [1, 6]"});
}

TEST(ShmCollective, ARankThatNeverComesIsNamedAtTheDeadline) {
  const Group group({2, 64, 1024, 1});
  const std::unique_ptr<Collective> collective = group.join(0, false, milliseconds(30));
  Status status = collective->barrier();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::timed_out);
  EXPECT_NE(status.error().message.find("rank 1 did not join round 1"), std::string::npos)
      << status.error().message;
  EXPECT_TRUE(group.segment().aborted());
}

TEST(ShmCollective, RefusesARankOutsideTheGroup) {
  const Group group({2, 64, 1024, 1});
  EXPECT_FALSE(make_shm_collective(group.segment(), {2}).has_value());
  EXPECT_FALSE(make_shm_collective(group.segment(), {-1}).has_value());
}

TEST(ShmCollective, RefusesARankThatHasJoinedBefore) {
  const Group group({2, 64, 1024, 8});
  EXPECT_TRUE(make_shm_collective(group.segment(), {1}).has_value());
  const auto again = make_shm_collective(group.segment(), {1});
  ASSERT_FALSE(again.has_value());
  EXPECT_NE(again.error().message.find("rank 1 has joined this segment (generation 8) before"),
            std::string::npos)
      << again.error().message;
  EXPECT_TRUE(make_shm_collective(group.segment(), {0}).has_value());
}

#ifndef __SANITIZE_THREAD__
TEST(ShmCollective, TheSupervisorsAbortFreesThePeersOfAKilledRank) {
  const Group group({3, 64, 1024, 1});
  const auto rank_main = [&](int rank) {
    const std::unique_ptr<Collective> collective = group.join(rank);
    std::vector<double> part(8, 1);
    std::vector<float> sum(8);
    Status status;
    for (int round = 0; status.has_value() && round < 1000; ++round) {
      if (rank == 2 && round == 100) (void)::raise(SIGKILL);
      status = collective->all_reduce_add(sums_view(part.data(), 1, 8), f32_view(sum.data(), 1, 8));
    }
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(sum[0], 300);
    EXPECT_NE(status.error().message.find("rank 2 died of signal 9"), std::string::npos)
        << status.error().message;
  };
  const std::vector<RankEnd> ends = run_ranks(3, rank_main, [&](int rank, const RankEnd& end) {
    if (end.signal == SIGKILL) {
      group.segment().abort("rank " + std::to_string(rank) + " died of signal 9");
    }
  });
  EXPECT_TRUE(ends[0].passed);
  EXPECT_TRUE(ends[1].passed);
  EXPECT_EQ(ends[2].signal, SIGKILL);
}
#endif

}  // namespace
}  // namespace plimsoll
