#include "kernels/cuda/host/fibre.h"

#include <vector>

#include <gtest/gtest.h>

namespace plimsoll::host_cuda {
namespace {

// A switch is no synchronisation to ThreadSanitizer: what these fibres share would be a race.
#if !defined(__SANITIZE_THREAD__)

struct Players {
  Fibre* main = nullptr;
  Fibre* own = nullptr;
  std::vector<int> log;
};
thread_local Players* players = nullptr;

void counts_up() {
  int next = 10;
  while (true) {
    players->log.push_back(next++);
    Fibre::switch_over(*players->own, *players->main);
  }
}

TEST(Fibre, KeepsItsStackWhileOthersRun) {
  Players mine;
  players = &mine;
  Fibre main;
  Fibre fibre = std::move(*Fibre::create(3, counts_up));
  mine.main = &main;
  mine.own = &fibre;
  for (int i = 0; i < 3; ++i) {
    mine.log.push_back(i);
    Fibre::switch_over(main, fibre);
  }
  EXPECT_EQ(mine.log, (std::vector<int>{0, 10, 1, 11, 2, 12}));
}

TEST(Fibre, BeginsAnewAfterARestart) {
  Players mine;
  players = &mine;
  Fibre main;
  Fibre fibre = std::move(*Fibre::create(0, counts_up));
  mine.main = &main;
  mine.own = &fibre;
  Fibre::switch_over(main, fibre);
  Fibre::switch_over(main, fibre);
  fibre.restart();
  Fibre::switch_over(main, fibre);
  EXPECT_EQ(mine.log, (std::vector<int>{10, 11, 10}));
}

#endif

}  // namespace
}  // namespace plimsoll::host_cuda
