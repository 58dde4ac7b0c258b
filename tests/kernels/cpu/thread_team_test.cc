#include "kernels/cpu/thread_team.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>
#include <immintrin.h>
#include <sched.h>

namespace plimsoll {
namespace {

TEST(ThreadTeam, RunsEveryIndexExactlyOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    for (const bool spin : {true, false}) {
      ThreadTeam team({.threads = threads, .cpus = {}, .spin = spin});
      ASSERT_TRUE(team.status()) << team.status().error().message;
      ASSERT_EQ(team.size(), threads);
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(threads));
      constexpr int kRuns = 200;
      for (int run = 0; run < kRuns; ++run) {
        team.run([&](int index) { ++seen[static_cast<std::size_t>(index)]; });
      }
      for (const auto& count : seen) EXPECT_EQ(count.load(), kRuns);
    }
  }
}

TEST(ThreadTeam, BarrierSeparatesPhases) {
  constexpr int kThreads = 4, kPhases = 100;
  ThreadTeam team({.threads = kThreads, .cpus = {}, .spin = false});
  std::vector<int> written(kThreads, -1);
  std::atomic<int> wrong{0};
  team.run([&](int index) {
    for (int phase = 0; phase < kPhases; ++phase) {
      written[static_cast<std::size_t>(index)] = phase;
      team.barrier();
      for (const int value : written) wrong += value != phase;
      team.barrier();
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ThreadTeam, WritesOfMembersAreSeenByTheCaller) {
  ThreadTeam team({.threads = 3, .cpus = {}, .spin = true});
  std::vector<int> value(3);
  for (int run = 1; run <= 1000; ++run) {
    team.run([&](int index) { value[static_cast<std::size_t>(index)] = run; });
    for (const int v : value) ASSERT_EQ(v, run);
  }
}

TEST(ThreadTeam, FlushesDenormalsInsideARunOnly) {
  ThreadTeam team({.threads = 2, .cpus = {}, .spin = false});
  std::vector<unsigned> inside(2);
  const unsigned before = _mm_getcsr();
  team.run([&](int index) { inside[static_cast<std::size_t>(index)] = _mm_getcsr(); });
  EXPECT_EQ(inside[0] & 0x8040u, 0x8040u);
  EXPECT_EQ(inside[1] & 0x8040u, 0x8040u);
  EXPECT_EQ(_mm_getcsr(), before);
}

TEST(ThreadTeam, PinsItsThreadsToTheGivenCpus) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  std::vector<int> ran_on(2, -1);
  {
    ThreadTeam team({.threads = 2, .cpus = {cpu, cpu}, .spin = false});
    ASSERT_TRUE(team.status()) << team.status().error().message;
    team.run([&](int index) { ran_on[static_cast<std::size_t>(index)] = sched_getcpu(); });
  }
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(ran_on, (std::vector<int>{cpu, cpu}));
}

TEST(ThreadTeam, RefusesCpusThatDoNotMatchTheThreads) {
  const ThreadTeam two({.threads = 2, .cpus = {0}, .spin = true});
  ASSERT_FALSE(two.status());
  EXPECT_EQ(two.status().error().code, Code::invalid);
  const ThreadTeam none({.threads = 0, .cpus = {}, .spin = true});
  EXPECT_FALSE(none.status());
  const ThreadTeam nowhere({.threads = 1, .cpus = {1 << 20}, .spin = true});
  ASSERT_FALSE(nowhere.status());
  EXPECT_NE(nowhere.status().error().message.find("1048576"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
