// ThreadTeam: resident threads that run one function together, with barriers inside.
//
// One thread owns a team and calls `run`; it takes part as index 0. A run publishes the function by
// an epoch that the others wait for: spinning for kSpinTime, then asleep on a futex. Nothing is
// allocated in `run`. While in a run every thread flushes denormals (FTZ and DAZ).
//
// Units compiled for one instruction set (_avx2.cc, _avx512.cc) must not call into this header.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <pthread.h>

#include "shared/base/result.h"

namespace plimsoll {

struct ThreadTeamOptions {
  int threads = 1;        // including the caller
  std::vector<int> cpus;  // CPU of each thread, the constructing one first; empty: not pinned
  bool spin = true;       // false: sleep at once, for machines with fewer cores than threads
};

class ThreadTeam {
 public:
  static constexpr std::chrono::microseconds kSpinTime{40};

  // Starts the threads. Look at `status` before the first `run`.
  explicit ThreadTeam(const ThreadTeamOptions& options);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Errors: a thread could not be started or pinned.
  const Status& status() const { return status_; }
  int size() const { return size_; }

  // function(thread_index) on every thread, 0 <= thread_index < size(); returns once all have
  // returned. Writes made before and inside are seen by all after.
  template <typename Function>
  void run(Function&& function) {
    using Plain = std::remove_reference_t<Function>;
    run_erased([](void* context, int index) { (*static_cast<Plain*>(context))(index); },
               const_cast<void*>(static_cast<const void*>(std::addressof(function))));
  }

  // Inside a run: waits until every thread of the team has come here. All must call it equally
  // often.
  void barrier();

 private:
  using Erased = void (*)(void*, int);

  // A word that others wait for to change. Padded: waiting must not slow its neighbours.
  struct alignas(64) Gate {
    std::atomic<std::uint32_t> value{0};
    std::atomic<std::uint32_t> sleepers{0};
  };
  struct Member {
    ThreadTeam* team = nullptr;
    int index = 0;
    pthread_t thread{};
    bool started = false;
  };

  static void* member_main(void* member);
  void member_loop(int index);
  void run_erased(Erased function, void* context);
  Status start(const ThreadTeamOptions& options);
  void wait_for_change(Gate& gate, std::uint32_t old) const;
  static void open(Gate& gate, std::uint32_t value);

  Status status_;
  int size_ = 1;
  bool spin_ = true;
  bool stop_ = false;  // read after an epoch change only
  Erased function_ = nullptr;
  void* context_ = nullptr;
  std::vector<Member> members_;
  Gate epoch_;     // +1 a run
  Gate finished_;  // the epoch that all members have ended
  Gate barrier_;   // +1 a barrier
  alignas(64) std::atomic<int> running_{0};
  alignas(64) std::atomic<int> arrived_{0};
};

}  // namespace plimsoll
