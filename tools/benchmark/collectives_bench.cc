// CollectivesBench: times what ranks of a replica share through memory, between real processes.
//
// Usage: collectives_bench [--json] [RANKS [CALLS]]. Medians and 99th percentiles in us:
//   all_reduce  one all_reduce_add as rank 0 sees it, by size (of its f32 results) and by how the
//               ranks wait: spinning for a while (where each has a core; only an otherwise idle
//               machine shows its worth) or sleeping at once
//   step        from before a step is published until another rank has it, both spinning
//   hand_over   once round all ranks, each of which wakes the next through a futex: what no
//               collective can be quicker than where ranks outnumber cores
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <emmintrin.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/base/clock.h"
#include "shared/base/futex.h"
#include "shared/base/json.h"
#include "shared/base/replica_segment.h"
#include "shared/base/shared_block.h"
#include "worker/collective/shm_collective.h"
#include "worker/schedule/step_ring.h"

namespace plimsoll {
namespace {

constexpr int kWarmUpCalls = 200;
constexpr unsigned kSecondsMax = 60;
constexpr std::size_t kStepBytes = 512;  // of a decode step of 16 requests
constexpr Duration kStepGap = std::chrono::microseconds(20);
constexpr Bytes kWordGap = 128;

struct Measured {
  double median = 0, p99 = 0;  // µs
};

Measured quantiles(std::vector<double> times) {
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100]};
}

double us_since(TimePoint start) { return to_seconds(now() - start) * 1e6; }

// Runs `work(rank)` in a process for each rank but 0, and `work(0)` here; 0's times.
template <typename Work>
Result<Measured> measure(int ranks, const Work& work) {
  for (int rank = 1; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    ::alarm(kSecondsMax);
    ::_exit(work(rank) ? 0 : 1);
  }
  Result<std::vector<double>> times = work(0);
  bool passed = true;
  for (int rank = 1; rank < ranks; ++rank) {
    int status = 0;
    passed = ::wait(&status) > 0 && status == 0 && passed;
  }
  if (!times) return times.error();
  if (!passed) return internal_error("a rank failed");
  return quantiles(std::move(*times));
}

struct Segment {
  SharedBlock block;
  ReplicaSegment segment;
};

Result<Segment> make_segment(int ranks) {
  const ReplicaSegmentShape shape = {ranks, kSlotFloatsDefault, kStepRingBytesDefault, 1};
  SharedBlock block = TRY(SharedBlock::create("bench", replica_segment_bytes(shape)));
  const ReplicaSegment segment = TRY(init_replica_segment(block.bytes(), shape));
  return Segment{std::move(block), segment};
}

Result<Measured> all_reduce(int ranks, bool spin, std::int64_t count, int calls) {
  const Segment shared = TRY(make_segment(ranks));
  return measure(ranks, [&](int rank) -> Result<std::vector<double>> {
    const auto collective = TRY(make_shm_collective(shared.segment, {rank, spin}));
    std::vector<double> partial(static_cast<std::size_t>(count), 1);
    std::vector<float> sum(static_cast<std::size_t>(count));
    std::vector<double> times;
    times.reserve(static_cast<std::size_t>(calls));
    for (int call = -kWarmUpCalls; call < calls; ++call) {
      const TimePoint start = now();
      TRY(collective->all_reduce_add(sums_view(partial.data(), 1, count),
                                     f32_view(sum.data(), 1, count)));
      if (call >= 0) times.push_back(us_since(start));
    }
    return times;
  });
}

// Rank 1 publishes here, so that the times stay in this process. Clocks are the machine's own.
Result<Measured> step(int calls) {
  const Segment shared = TRY(make_segment(2));
  return measure(2, [&](int process) -> Result<std::vector<double>> {
    std::vector<double> times;
    if (process == 0) {
      StepReceiver receiver(shared.segment, {.rank = 1, .spin = true});
      while (std::ssize(times) < calls) {
        const auto message = TRY(receiver.receive(seconds(1)));
        if (!message) return timed_out("no step came");
        TimePoint sent;
        std::memcpy(&sent, message->data(), sizeof sent);
        times.push_back(us_since(sent));
      }
      return times;
    }
    StepPublisher publisher(shared.segment, {.spin = true});
    std::vector<std::byte> message(kStepBytes);
    for (int call = 0; call < calls; ++call) {
      const TimePoint next = now() + kStepGap;
      while (now() < next) _mm_pause();  // the receiver waits by then, and has not gone to sleep
      const TimePoint sent = now();
      std::memcpy(message.data(), &sent, sizeof sent);
      TRY(publisher.publish(message));
    }
    return times;
  });
}

Result<Measured> hand_over(int ranks, int calls) {
  using Word = std::atomic<std::uint32_t>;
  const SharedBlock block = TRY(SharedBlock::create("bench", ranks * kWordGap));
  const auto word = [&](int rank) -> Word& {
    return *std::launder(reinterpret_cast<Word*>(block.bytes().data() + rank * kWordGap));
  };
  for (int rank = 0; rank < ranks; ++rank) new (&word(rank)) Word(0);
  return measure(ranks, [&](int rank) -> Result<std::vector<double>> {
    std::vector<double> times;
    for (std::uint32_t call = 1; call <= static_cast<std::uint32_t>(calls); ++call) {
      const TimePoint start = now();
      const auto pass_on = [&] {
        Word& next = word((rank + 1) % ranks);
        next.store(call);
        futex_wake_all(next);
      };
      if (rank == 0) pass_on();
      while (word(rank).load() < call) futex_wait(word(rank), call - 1, seconds(1));
      if (rank != 0) pass_on();
      times.push_back(us_since(start));
    }
    return times;
  });
}

struct Printer {
  bool json = false;
  int ranks = 0;

  void operator()(const char* what, const char* wait, std::int64_t kibibytes,
                  const Measured& measured) const {
    if (json) {
      Json line = Json::object();
      line.set("what", what);
      line.set("wait", wait);
      line.set("ranks", std::int64_t{ranks});
      line.set("kib", kibibytes);
      line.set("p50_us", measured.median);
      line.set("p99_us", measured.p99);
      std::printf("%s\n", dump_json(line).c_str());
    } else {
      std::printf("%10s %6s %8ld %10.1f %10.1f\n", what, wait, static_cast<long>(kibibytes),
                  measured.median, measured.p99);
    }
    (void)std::fflush(stdout);
  }
};

Status print_table(int ranks, int calls, bool json) {
  const std::int64_t cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  const Printer print{json, ranks};
  if (!json) {
    std::printf("%d ranks on %" PRId64 " cores, %d calls a line\n", ranks, cores, calls);
    std::printf("%10s %6s %8s %10s %10s\n", "what", "wait", "KiB", "p50 us", "p99 us");
  }
  for (const std::int64_t kibibytes : {4, 8, 14, 32, 64}) {
    const std::int64_t count = kibibytes * kKiB / static_cast<Bytes>(sizeof(float));
    if (ranks <= cores) {
      print("all_reduce", "spin", kibibytes, TRY(all_reduce(ranks, true, count, calls)));
    }
    print("all_reduce", "sleep", kibibytes, TRY(all_reduce(ranks, false, count, calls)));
  }
  if (cores >= 2) print("step", "spin", 0, TRY(step(calls)));
  print("hand_over", "sleep", 0, TRY(hand_over(ranks, calls)));
  return {};
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  const bool json = argc > 1 && std::string_view(argv[1]) == "--json";
  if (json) --argc, ++argv;
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int calls = argc > 2 ? std::atoi(argv[2]) : 5000;
  if (argc > 3 || ranks < 1 || ranks > plimsoll::kReplicaRanksMax || calls < 1) {
    std::fprintf(stderr,
                 "usage: collectives_bench [--json] [RANKS [CALLS]]; RANKS is 1 to %d, default 2\n",
                 plimsoll::kReplicaRanksMax);
    return 2;
  }
  const plimsoll::Status status = plimsoll::print_table(ranks, calls, json);
  if (status) return 0;
  std::fprintf(stderr, "collectives_bench: %s\n", status.error().message.c_str());
  return 1;
}
