#include "kernels/cpu/thread_team.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/base/check.h"

namespace plimsoll {
namespace {

// Flush-to-zero and denormals-are-zero for the life of the object: a denormal operand costs over a
// hundred cycles, and activations that small change nothing.
class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned before_;
};

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation | FUTEX_PRIVATE_FLAG, value,
          nullptr, nullptr, 0);
}

Status pin(pthread_t thread, int cpu) {
  int error = EINVAL;
  if (cpu >= 0 && cpu < CPU_SETSIZE) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    error = pthread_setaffinity_np(thread, sizeof set, &set);
  }
  if (error == 0) return {};
  return invalid("pin a kernel thread to CPU " + std::to_string(cpu) + ": " + strerror(error) +
                 "; give CPUs that this process may run on, or none");
}

}  // namespace

ThreadTeam::ThreadTeam(const ThreadTeamOptions& options) : spin_(options.spin) {
  status_ = start(options);
}

Status ThreadTeam::start(const ThreadTeamOptions& options) {
  if (options.threads < 1) {
    return invalid("start kernel threads: " + std::to_string(options.threads) +
                   " asked for, at least 1 is needed");
  }
  const auto threads = static_cast<std::size_t>(options.threads);
  if (!options.cpus.empty() && options.cpus.size() != threads) {
    return invalid("start kernel threads: " + std::to_string(options.cpus.size()) +
                   " CPUs given for " + std::to_string(threads) + " threads; give one a thread");
  }
  if (!options.cpus.empty()) TRY(pin(pthread_self(), options.cpus[0]));
  members_.resize(threads - 1);
  // Signals are the process's business: none is delivered to a kernel thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (std::size_t i = 0; i < members_.size() && error == 0; ++i) {
    members_[i].team = this;
    members_[i].index = static_cast<int>(i) + 1;
    error = pthread_create(&members_[i].thread, nullptr, member_main, &members_[i]);
    members_[i].started = error == 0;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return unavailable("start " + std::to_string(threads) + " kernel threads: " + strerror(error) +
                       "; use fewer threads or raise the limit on tasks");
  }
  for (std::size_t i = 0; i < members_.size() && !options.cpus.empty(); ++i) {
    TRY(pin(members_[i].thread, options.cpus[i + 1]));
  }
  size_ = options.threads;
  return {};
}

ThreadTeam::~ThreadTeam() {
  stop_ = true;
  open(epoch_, epoch_.value.load(std::memory_order_relaxed) + 1);
  for (Member& member : members_) {
    if (member.started) pthread_join(member.thread, nullptr);
  }
}

void* ThreadTeam::member_main(void* member) {
  const Member& self = *static_cast<Member*>(member);
  pthread_setname_np(pthread_self(), "kernel");
  self.team->member_loop(self.index);
  return nullptr;
}

void ThreadTeam::member_loop(int index) {
  const FlushDenormals flush;
  for (std::uint32_t epoch = 0;;) {
    wait_for_change(epoch_, epoch);
    ++epoch;
    if (stop_) return;
    function_(context_, index);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) open(finished_, epoch);
  }
}

void ThreadTeam::run_erased(Erased function, void* context) {
  CHECK(status_.has_value());
  const FlushDenormals flush;
  if (size_ == 1) {
    function(context, 0);
    return;
  }
  const std::uint32_t epoch = epoch_.value.load(std::memory_order_relaxed) + 1;
  function_ = function;
  context_ = context;
  running_.store(size_ - 1, std::memory_order_relaxed);
  open(epoch_, epoch);
  function(context, 0);
  wait_for_change(finished_, epoch - 1);
}

void ThreadTeam::barrier() {
  if (size_ == 1) return;
  const std::uint32_t turn = barrier_.value.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.store(0, std::memory_order_relaxed);
    open(barrier_, turn + 1);
  } else {
    wait_for_change(barrier_, turn);
  }
}

void ThreadTeam::wait_for_change(Gate& gate, std::uint32_t old) const {
  constexpr int kPollsPerClock = 64;
  if (spin_) {
    const auto end = std::chrono::steady_clock::now() + kSpinTime;
    do {
      for (int poll = 0; poll < kPollsPerClock; ++poll) {
        if (gate.value.load(std::memory_order_acquire) != old) return;
        _mm_pause();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  // Sequentially consistent with `open`: either it sees the sleeper or the sleeper sees the value.
  gate.sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (gate.value.load(std::memory_order_seq_cst) == old) futex(gate.value, FUTEX_WAIT, old);
  gate.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadTeam::open(Gate& gate, std::uint32_t value) {
  gate.value.store(value, std::memory_order_seq_cst);
  if (gate.sleepers.load(std::memory_order_seq_cst) != 0) futex(gate.value, FUTEX_WAKE, INT32_MAX);
}

}  // namespace plimsoll
