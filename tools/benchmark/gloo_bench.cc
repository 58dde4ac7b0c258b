// gloo_bench: Gloo's all-reduce of f32 between processes of this machine, beside collectives_bench.
//
// Usage: gloo_bench [RANKS [CALLS]]. A line of JSON a size, of the quicker of its algorithms.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kWarmUpCalls = 200;
constexpr unsigned kSecondsMax = 120;

double median_us(const std::shared_ptr<gloo::Context>& context, int count, int calls,
                 gloo::AllreduceOptions::Algorithm algorithm) {
  std::vector<float> values(static_cast<std::size_t>(count), 1);
  std::vector<float> sums(values.size());
  gloo::AllreduceOptions options(context);
  options.setInput(values.data(), values.size());
  options.setOutput(sums.data(), sums.size());
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  options.setAlgorithm(algorithm);
  std::vector<double> times;
  for (int call = -kWarmUpCalls; call < calls; ++call) {
    const Clock::time_point begin = Clock::now();
    gloo::allreduce(options);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (call >= 0) times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int run_rank(int rank, int ranks, int calls, const std::string& folder) {
  try {
    gloo::transport::tcp::attr attributes;
    attributes.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    gloo::rendezvous::FileStore store(folder);
    context->connectFullMesh(store, device);
    for (const int kibibytes : {4, 8, 14, 32, 64}) {
      const int count = kibibytes * 1024 / static_cast<int>(sizeof(float));
      using Algorithm = gloo::AllreduceOptions::Algorithm;
      const double ring = median_us(context, count, calls, Algorithm::RING);
      const double bcube = median_us(context, count, calls, Algorithm::BCUBE);
      if (rank != 0) continue;
      std::printf("{\"ranks\":%d,\"kib\":%d,\"p50_us\":%.3f}\n", ranks, kibibytes,
                  std::min(ring, bcube));
    }
    (void)std::fflush(stdout);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo_bench: rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int calls = argc > 2 ? std::atoi(argv[2]) : 5000;
  if (argc > 3 || ranks < 2 || ranks > 64 || calls < 1) {
    std::fputs("usage: gloo_bench [RANKS [CALLS]]; RANKS is 2 to 64, default 2\n", stderr);
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "gloo-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    std::fputs("gloo_bench: no folder for the ranks to meet in\n", stderr);
    return 1;
  }
  for (int rank = 1; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    ::alarm(kSecondsMax);
    ::_exit(run_rank(rank, ranks, calls, folder));
  }
  int failed = run_rank(0, ranks, calls, folder);
  for (int rank = 1; rank < ranks; ++rank) {
    int status = 0;
    if (::wait(&status) < 0 || status != 0) failed = 1;
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return failed;
}
