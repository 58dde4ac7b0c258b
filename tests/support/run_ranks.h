// RunRanks: runs the same function as several ranks at once, each a process of its own.
//
// Processes share what was shared before (a SharedBlock). Under ThreadSanitizer, which sees one
// process alone, ranks are threads. A rank that does not end in time is killed.
#pragma once

#include <functional>
#include <vector>

namespace plimsoll {

// How each rank ended.
struct RankEnd {
  bool passed = false;  // returned, and no expectation of a test failed in it
  int signal = 0;       // that ended it
};

// Calls `on_end`, where given, for each rank as it ends. REQUIRES: no other threads run (their
// locks would be copied as they are), the process has no other children.
std::vector<RankEnd> run_ranks(
    int ranks, const std::function<void(int rank)>& rank_main,
    const std::function<void(int rank, const RankEnd& end)>& on_end = nullptr);

bool all_passed(const std::vector<RankEnd>& ends);

}  // namespace plimsoll
