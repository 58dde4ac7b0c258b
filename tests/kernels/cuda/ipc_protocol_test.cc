// The protocols of all-reduce over peers' memory, with ranks as processes, or as threads under
// ThreadSanitizer; and that none of their orders can be spared.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/shared_block.h"
#include "tests/kernels/cuda/ipc_ranks.h"
#include "tests/support/run_ranks.h"

namespace plimsoll::cuda {
namespace {

constexpr std::int64_t kHalfBytes = 4096;  // of 24 pairs of 8 ranks, all kinds
constexpr std::uint64_t kSeed = 7;
constexpr std::uint64_t kRoundsOfARun = 50'000;  // a rank may not take long

class Group {
 public:
  explicit Group(int ranks)
      : ranks_(ranks),
        memory_(std::move(
            *SharedBlock::create("ranks", kRunBytes + ranks * ipc_buffer_bytes(kHalfBytes)))) {}

  IpcRun& run() const { return *reinterpret_cast<IpcRun*>(memory_.bytes().data()); }
  IpcGroup of(int rank) const {
    IpcGroup group{};
    group.rank = rank;
    group.ranks = ranks_;
    group.half_bytes = kHalfBytes;
    for (int r = 0; r < ranks_; ++r) {
      group.buffers[r] = reinterpret_cast<unsigned char*>(memory_.bytes().data()) + kRunBytes +
                         r * ipc_buffer_bytes(kHalfBytes);
    }
    return group;
  }

 private:
  static constexpr Bytes kRunBytes = 4096;
  int ranks_;
  SharedBlock memory_;
};

std::uint64_t rounds_of(int ranks) {
  const char* given = std::getenv("PLIMSOLL_COLLECTIVE_ROUNDS");  // tools/check all: 1,000,000
  return given != nullptr && ranks == 2 ? std::stoull(given) : 10'000;
}

const char* name_of(ReduceKind kind) {
  return kind == ReduceKind::one_shot   ? "OneShot"
         : kind == ReduceKind::two_shot ? "TwoShot"
                                        : "Staged";
}

constexpr ReduceKind kKinds[] = {ReduceKind::one_shot, ReduceKind::two_shot, ReduceKind::staged};

TEST(IpcProtocol, SumsInRankOrderWhateverStallsAndWhateverWasCalledBefore) {
  const int kRanks[] = {2, 3, 8};
  for (const int ranks : kRanks) {
#if defined(__SANITIZE_THREAD__)
    if (ranks == 3) continue;
    const std::uint64_t rounds = ranks == 2 ? rounds_of(ranks) : 300;
#else
    const std::uint64_t rounds = ranks == 3 ? 2'000 : rounds_of(ranks);
#endif
    const Group group(ranks);
    IpcRounds some{.blocks_max = ranks == 8 ? 1 : 3,
                   .kinds = {kKinds[0], kKinds[1], kKinds[2]},
                   .setup = {.seed = kSeed, .stall_every = ranks == 8 ? 8192U : 512U}};
    for (; some.first <= rounds && !HasFailure(); some.first += some.rounds) {
      some.rounds = std::min(kRoundsOfARun, rounds + 1 - some.first);
      EXPECT_TRUE(all_passed(run_ranks(
          ranks, [&](int rank) { run_rank<Lacks::nothing>(group.of(rank), group.run(), some); })));
    }
    EXPECT_EQ(group.run().wrong.load(), 0U) << ranks << " ranks, seed " << kSeed;
    EXPECT_EQ(group.run().expired.load(), 0U) << ranks << " ranks, seed " << kSeed;
  }
}

class IpcKind : public testing::TestWithParam<ReduceKind> {};
INSTANTIATE_TEST_SUITE_P(All, IpcKind, testing::ValuesIn(kKinds),
                         [](const auto& tested) { return name_of(tested.param); });

// Calls with wrong results, of two ranks whose protocol lacks something.
template <Lacks kLacks>
std::uint32_t wrong_without(ReduceKind kind) {
  const Group group(2);
#if defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t kRounds = 100;  // each reports a race
#else
  constexpr std::uint64_t kRounds = 10'000;
#endif
  const IpcRounds rounds{.rounds = kRounds, .kinds = {kind}, .setup = {.seed = kSeed}};
  (void)run_ranks(2, [&](int rank) { run_rank<kLacks>(group.of(rank), group.run(), rounds); });
  return group.run().wrong.load();
}

#if defined(__SANITIZE_THREAD__)
// A race ends the process with code 66, in the end.
template <Lacks kLacks>
[[noreturn]] void exit_without(ReduceKind kind) {
  (void)wrong_without<kLacks>(kind);
  std::exit(0);
}
#define EXPECT_SHOWS(lacks, kind) \
  EXPECT_EXIT(exit_without<lacks>(kind), testing::ExitedWithCode(66), "data race")
#else
#define EXPECT_SHOWS(lacks, kind) EXPECT_GT(wrong_without<lacks>(kind), 0U)
#endif

TEST_P(IpcKind, ShowsThatAFlagIsNotReleased) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_SHOWS(Lacks::release, GetParam());
}

TEST_P(IpcKind, ShowsThatAFlagIsNotAcquired) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_SHOWS(Lacks::acquire, GetParam());
}

TEST_P(IpcKind, ShowsThatThereIsOneHalfOnly) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_SHOWS(Lacks::second_half, GetParam());
}

TEST_P(IpcKind, EndsWithoutAPeerAtTheDeadlineAndForAnAbort) {
  for (const bool is_aborted : {false, true}) {
    const Group group(2);
    if (is_aborted) group.run().abort_word.store(1);
    const IpcRounds rounds{.rounds = 1,
                           .kinds = {GetParam()},
                           .setup = {.seed = kSeed,
                                     .stall_every = 0,
                                     .deadline = is_aborted ? seconds(20) : milliseconds(5)}};
    run_rank<Lacks::nothing>(group.of(0), group.run(), rounds);
    EXPECT_EQ(group.run().expired.load(), is_aborted ? 0U : 1U);
  }
}

}  // namespace
}  // namespace plimsoll::cuda
