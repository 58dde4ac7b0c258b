// DroppedBarriers: runs a kernel with one of its barriers left out, each in turn, and expects that
// it shows. A test compiles the kernel's source with __syncthreads() (or __syncwarp()) defined as
// barrier(): see rms_norm_test.cc.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/host/device_calls.h"
#include "kernels/cuda/host/executor.h"

namespace plimsoll::testing_kernels {

struct Barriers {
  int dropped_line = 0;
  // Those that were come to. Atomic: to ThreadSanitizer CUDA threads are threads.
  std::array<std::atomic<bool>, 1024> lines = {};
};

inline Barriers& barriers() {
  thread_local Barriers state;
  return state;
}

inline void barrier(const char* file, int line) {
  if (line == barriers().dropped_line) return;
  if (barriers().dropped_line == 0) barriers().lines.at(static_cast<std::size_t>(line)).store(true);
  host_cuda::block_barrier({file, line, "__syncthreads"});
}

inline void warp_barrier(const char* file, int line) {
  if (line == barriers().dropped_line) return;
  if (barriers().dropped_line == 0) barriers().lines.at(static_cast<std::size_t>(line)).store(true);
  host_cuda::warp_operation(0xffffffffU, nullptr, {.orders_memory = true},
                            {file, line, "__syncwarp"});
}

struct ExpectedBarriers {
  std::size_t count = 0;  // that the test comes to
  // Of them, those beside a shuffle, where lanes meet anyway: what they order (memory) shows under
  // ThreadSanitizer alone.
  std::size_t beside_shuffles = 0;
};

// `run` launches the kernel and says whether its values are right. With all barriers it must be
// under every order; without one of them it must be wrong, or fail, under most.
inline void expect_every_barrier_is_needed(
    const char* source, const ExpectedBarriers& expected,
    const std::function<Result<bool>(host_cuda::Executor&)>& run) {
#if defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t kFirst = 2, kOrders = 2;
#else
  constexpr std::uint64_t kFirst = 2, kOrders = 8;
#endif
  const auto wrong_orders = [&] {
    std::uint64_t wrong = 0;
    for (std::uint64_t seed = kFirst; seed < kFirst + kOrders; ++seed) {
      host_cuda::Executor executor({.seed = seed});
      const Result<bool> right = run(executor);
      if (!right || !*right) ++wrong;
    }
    return wrong;
  };
  Barriers& state = barriers();
  state.dropped_line = 0;
  for (auto& line : state.lines) line.store(false);
  EXPECT_EQ(wrong_orders(), 0U) << source << " with all its barriers";
  std::vector<int> lines;
  for (std::size_t line = 0; line < state.lines.size(); ++line) {
    if (state.lines[line].load()) lines.push_back(static_cast<int>(line));
  }
  EXPECT_EQ(lines.size(), expected.count) << "barriers of " << source << " that the test comes to";
#if defined(__SANITIZE_THREAD__)
  return;  // a race would be reported before values are compared: what counts here is that there is
           // none
#endif
  std::string hidden;
  std::size_t hidden_count = 0;
  for (const int line : lines) {
    state.dropped_line = line;
    if (wrong_orders() >= kOrders / 2) continue;
    hidden += " " + std::to_string(line);
    ++hidden_count;
  }
  EXPECT_EQ(hidden_count, expected.beside_shuffles)
      << source << ": leaving out these barriers does not show:" << hidden;
  state.dropped_line = 0;
}

}  // namespace plimsoll::testing_kernels
