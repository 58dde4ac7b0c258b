#include "tests/support/run_ranks.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace plimsoll {
namespace {

#ifndef __SANITIZE_THREAD__
constexpr unsigned kSecondsMax = 30;

[[noreturn]] void child_main(int rank, const std::function<void(int rank)>& rank_main) {
  ::alarm(kSecondsMax);
  rank_main(rank);
  (void)std::fflush(nullptr);
  // Without exit handlers: they belong to the parent.
  ::_exit(testing::Test::HasFailure() ? 1 : 0);
}
#endif

}  // namespace

#ifdef __SANITIZE_THREAD__
std::vector<RankEnd> run_ranks(int ranks, const std::function<void(int rank)>& rank_main,
                               const std::function<void(int rank, const RankEnd& end)>& on_end) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(rank_main, rank);
  for (std::thread& thread : threads) thread.join();
  std::vector<RankEnd> ends(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    RankEnd& end = ends[static_cast<std::size_t>(rank)];
    end.passed = !testing::Test::HasFailure();
    if (on_end) on_end(rank, end);
  }
  return ends;
}
#else
std::vector<RankEnd> run_ranks(int ranks, const std::function<void(int rank)>& rank_main,
                               const std::function<void(int rank, const RankEnd& end)>& on_end) {
  (void)std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) child_main(rank, rank_main);
    children.push_back(pid);
  }
  std::vector<RankEnd> ends(children.size());
  for (std::size_t ended = 0; ended < children.size(); ++ended) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, 0);
    const auto child = std::find(children.begin(), children.end(), pid);
    if (pid <= 0 || child == children.end()) break;
    const auto rank = static_cast<std::size_t>(child - children.begin());
    ends[rank] = {WIFEXITED(status) && WEXITSTATUS(status) == 0,
                  WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    if (on_end) on_end(static_cast<int>(rank), ends[rank]);
  }
  return ends;
}
#endif

bool all_passed(const std::vector<RankEnd>& ends) {
  return std::all_of(ends.begin(), ends.end(), [](const RankEnd& end) { return end.passed; });
}

}  // namespace plimsoll
