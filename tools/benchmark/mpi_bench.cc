// mpi_bench: OpenMPI's all-reduce of f32 on this machine, to set beside collectives_bench.
//
// Usage: mpirun -np RANKS mpi_bench [CALLS]. Rank 0 prints a line of JSON a size.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <mpi.h>

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  const int calls = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5000;
  const int warm_up = 200;
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const int kibibytes : {4, 8, 14, 32, 64}) {
    const int count = kibibytes * 1024 / static_cast<int>(sizeof(float));
    std::vector<float> values(static_cast<std::size_t>(count), 1);
    std::vector<float> sums(values.size());
    std::vector<double> times;
    for (int call = -warm_up; call < calls; ++call) {
      const Clock::time_point begin = Clock::now();
      MPI_Allreduce(values.data(), sums.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
      if (call >= 0) times.push_back(took.count());
    }
    std::sort(times.begin(), times.end());
    if (rank != 0) continue;
    std::printf("{\"ranks\":%d,\"kib\":%d,\"p50_us\":%.3f,\"p99_us\":%.3f}\n", ranks, kibibytes,
                times[times.size() / 2], times[times.size() * 99 / 100]);
  }
  MPI_Finalize();
  return 0;
}
