// DeathBench: how soon a killed process is known dead, by its size, by its robust mutex and by its
// pidfd.
//
// Usage: death_bench [COUNT]. Prints median and 99th percentile in ms over COUNT (200) deaths. The
// large process maps one small memory again and again: the kernel has as much to take apart as for
// one with that much memory, and the machine needs no more than a little.
//
// Under load most of it is the wait for a processor. `chrt -f 5 death_bench` takes that away: what
// it starts and kills is real-time too, one class below, so that nobody else is in between.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/base/clock.h"
#include "shared/base/replica_segment.h"
#include "shared/base/shared_block.h"
#include "shared/base/unique_fd.h"
#include "shared/base/units.h"

namespace plimsoll {
namespace {

constexpr Bytes kPieceBytes = 4 * kMiB;
constexpr int kDeadlineMs = 20'000;

struct Times {
  std::vector<double> by_mutex;  // ms
  std::vector<double> by_pidfd;
};

void be_below_in_real_time() {
  if (::sched_getscheduler(0) != SCHED_FIFO) return;
  const sched_param lowest{.sched_priority = 1};
  (void)::sched_setscheduler(0, SCHED_FIFO, &lowest);
}

// In the child: maps that much, holds its life, says so, and waits to be killed.
[[noreturn]] void live(ReplicaSegment segment, Bytes bytes, int ready) {
  be_below_in_real_time();
  const int piece = ::memfd_create("bench", MFD_CLOEXEC);
  bool is_fine = piece >= 0 && ::ftruncate(piece, kPieceBytes) == 0;
  for (Bytes mapped = 0; is_fine && mapped < bytes; mapped += kPieceBytes) {
    is_fine = ::mmap(nullptr, kPieceBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, piece,
                     0) != MAP_FAILED;
  }
  is_fine = is_fine && segment.hold_life(0).has_value();
  const char word = is_fine ? 'y' : 'n';
  (void)!::write(ready, &word, 1);
  for (;;) ::pause();
}

bool wait_for(int fd) {
  pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, kDeadlineMs) == 1;
}

Status die_once(Bytes bytes, Times& times) {
  const ReplicaSegmentShape shape = {.ranks = 1};
  const SharedBlock block = TRY(SharedBlock::create("bench", replica_segment_bytes(shape)));
  const ReplicaSegment segment = TRY(init_replica_segment(block.bytes(), shape));
  std::array<int, 2> ready{};
  if (::pipe(ready.data()) != 0) return internal_error("no pipe is left");
  const pid_t pid = ::fork();
  if (pid == 0) live(segment, bytes, ready[1]);
  const UniqueFd in(ready[0]);
  const UniqueFd out(ready[1]);
  char word = 'n';
  if (::read(in.get(), &word, 1) != 1 || word != 'y') return internal_error("the child has failed");
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // As the daemon's DeathWatch: a thread that waits for the mutex and tells through an eventfd.
  const std::jthread watch([&segment, fd = event.get()] {
    if (!segment.wait_for_death(0, seconds(20))) return;
    const std::uint64_t one = 1;
    (void)!::write(fd, &one, sizeof one);
  });
  (void)::poll(nullptr, 0, 2);  // the watch waits by then
  const TimePoint killed = now();
  ::kill(pid, SIGKILL);
  if (!wait_for(event.get())) return timed_out("a death was never told of");
  times.by_mutex.push_back(to_seconds(now() - killed) * 1e3);
  if (!wait_for(pidfd.get())) return timed_out("a process never ended");
  times.by_pidfd.push_back(to_seconds(now() - killed) * 1e3);
  ::waitpid(pid, nullptr, 0);
  return {};
}

double quantile(std::vector<double>& values, double q) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

int run(int count) {
  std::printf("%10s %14s %14s %14s %14s\n", "process", "mutex p50 ms", "mutex p99 ms",
              "pidfd p50 ms", "pidfd p99 ms");
  for (const Bytes bytes : {64 * kMiB, 2 * kGiB}) {
    Times times;
    for (int i = 0; i < count; ++i) {
      if (const Status done = die_once(bytes, times); !done) {
        std::fprintf(stderr, "death_bench: %s\n", done.error().message.c_str());
        return 1;
      }
    }
    std::printf("%10s %14.2f %14.2f %14.2f %14.2f\n", format_bytes(bytes).c_str(),
                quantile(times.by_mutex, 0.5), quantile(times.by_mutex, 0.99),
                quantile(times.by_pidfd, 0.5), quantile(times.by_pidfd, 0.99));
  }
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 200;
  return plimsoll::run(std::max(count, 1));
}
