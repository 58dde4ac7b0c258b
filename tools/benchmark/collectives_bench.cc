// CollectivesBench: times the shared-memory collective between real processes, at decode sizes.
//
// Usage: collectives_bench [RANKS [CALLS]]. Prints the median and 99th percentile of one
// all_reduce_add in µs, as rank 0 sees it, by size and by how the ranks wait: spinning for a while
// (where each has a core; only an otherwise idle machine shows its worth) or sleeping at once.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "shared/base/clock.h"
#include "shared/base/replica_segment.h"
#include "shared/base/shared_block.h"
#include "worker/collective/shm_collective.h"

namespace plimsoll {
namespace {

constexpr int kWarmUpCalls = 200;
constexpr unsigned kSecondsMax = 60;

struct Measured {
  double median = 0, p99 = 0;  // µs
};

// One rank's calls; the times of each.
Result<std::vector<double>> call_many(Collective& collective, std::int64_t count, int calls) {
  std::vector<double> partial(static_cast<std::size_t>(count), 1);
  std::vector<float> sum(static_cast<std::size_t>(count));
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(calls));
  for (int call = -kWarmUpCalls; call < calls; ++call) {
    const TimePoint start = now();
    TRY(collective.all_reduce_add(sums_view(partial.data(), 1, count),
                                  f32_view(sum.data(), 1, count)));
    if (call >= 0) times.push_back(to_seconds(now() - start) * 1e6);
  }
  return times;
}

Result<Measured> measure(int ranks, bool spin, std::int64_t count, int calls) {
  const ReplicaSegmentShape shape = {ranks, kSlotFloatsDefault, kStepRingBytesDefault, 1};
  const SharedBlock block = TRY(SharedBlock::create("bench", replica_segment_bytes(shape)));
  const ReplicaSegment segment = TRY(init_replica_segment(block.bytes(), shape));
  for (int rank = 1; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    ::alarm(kSecondsMax);
    auto collective = make_shm_collective(segment, {rank, spin});
    ::_exit(collective && call_many(**collective, count, calls) ? 0 : 1);
  }
  const auto collective = TRY(make_shm_collective(segment, {0, spin}));
  Result<std::vector<double>> times = call_many(*collective, count, calls);
  bool passed = true;
  for (int rank = 1; rank < ranks; ++rank) {
    int status = 0;
    passed = ::wait(&status) > 0 && status == 0 && passed;
  }
  if (!times) return times.error();
  if (!passed) return internal_error("a rank failed");
  std::sort(times->begin(), times->end());
  return Measured{(*times)[times->size() / 2], (*times)[times->size() * 99 / 100]};
}

void print(const char* way, std::int64_t kibibytes, const Measured& measured) {
  std::printf("%6s %8ld %10.1f %10.1f\n", way, static_cast<long>(kibibytes), measured.median,
              measured.p99);
  (void)std::fflush(stdout);
}

Status print_table(int ranks, int calls) {
  const std::int64_t cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  std::printf("all_reduce_add over %d ranks on %" PRId64 " cores, %d calls a line\n", ranks, cores,
              calls);
  std::printf("%6s %8s %10s %10s\n", "wait", "KiB", "p50 us", "p99 us");
  for (const std::int64_t kibibytes : {4, 8, 14, 32, 64}) {
    const std::int64_t count = kibibytes * kKiB / static_cast<Bytes>(sizeof(double));
    if (ranks <= cores) print("spin", kibibytes, TRY(measure(ranks, true, count, calls)));
    print("sleep", kibibytes, TRY(measure(ranks, false, count, calls)));
  }
  return {};
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int calls = argc > 2 ? std::atoi(argv[2]) : 5000;
  if (argc > 3 || ranks < 1 || ranks > plimsoll::kReplicaRanksMax || calls < 1) {
    std::fprintf(stderr, "usage: collectives_bench [RANKS [CALLS]]; RANKS is 1 to %d, default 2\n",
                 plimsoll::kReplicaRanksMax);
    return 2;
  }
  const plimsoll::Status status = plimsoll::print_table(ranks, calls);
  if (status) return 0;
  std::fprintf(stderr, "collectives_bench: %s\n", status.error().message.c_str());
  return 1;
}
