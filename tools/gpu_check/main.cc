// gpu_check: what tools/gpu-check asks of a device's kernels: results on stdout, a line of JSON
// each.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/driver_runtime.h"
#include "kernels/cuda/host_runtime.h"
#include "kernels/cuda/modules.h"
#include "shared/base/json.h"
#include "tools/gpu_check/kernel_check.h"
#include "tools/gpu_check/speed_check.h"

namespace plimsoll {
namespace {

constexpr const char* kUsage =
    "usage: gpu_check --device cuda|cuda:host --part device|kernels|speed [--seed N] [--from N]\n"
    "Checks and measures the kernels for GPUs on the driver's first one, or on the CPU. Each check "
    "is\n"
    "named before it runs; --from goes on with a later one, where a device fault ended a run.\n";
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr Bytes kHostMemory = kGiB / 2;

struct Arguments {
  bool on_host = false;
  std::string part;
  std::uint64_t seed = 1;
  std::size_t from = 0;
};

Result<std::unique_ptr<cuda::DeviceRuntime>> open_device(const Arguments& arguments) {
  if (arguments.on_host) {
    return cuda::make_host_runtime({.memory = kHostMemory, .seed = arguments.seed + 1});
  }
  return cuda::make_driver_runtime(
      {.modules = cuda::cuda_modules(), .architectures = std::string(cuda::cuda_architectures())});
}

void print(const Json& line) {
  std::printf("%s\n", dump_json(line).c_str());
  std::fflush(stdout);
}

bool check(Backend& backend, const Arguments& arguments) {
  auto reference =
      make_cpu_backend({.threads = 1, .cpus = {}, .spin = false, .path = CpuPath::scalar});
  if (!reference) return false;
  bool passed = true;
  const bool finished = check_kernels(
      backend, **reference,
      {.seed = arguments.seed,
       .from = arguments.from,
       .begins =
           [](std::size_t index, const std::string& name) {
             print(Json::object({{"begins", name}, {"index", static_cast<std::int64_t>(index)}}));
           },
       .ended =
           [&](const KernelCheck& one) {
             passed = passed && one.passed();
             print(Json::object({{"check", one.name},
                                 {"index", static_cast<std::int64_t>(one.index)},
                                 {"passed", one.passed()},
                                 {"worst", one.worst},
                                 {"tolerance", one.tolerance},
                                 {"error", one.error}}));
           }});
  if (finished) print(Json::object({{"finished", true}}));
  return passed && finished;
}

Status measure(Backend& backend, const SpeedSize& size) {
  for (const Speed& speed : TRY(measure_speeds(backend, size))) {
    print(Json::object({{"speed", speed.name},
                        {"seconds", speed.seconds},
                        {"bytes_per_second", speed.bytes / speed.seconds},
                        {"products_per_second", speed.products / speed.seconds}}));
  }
  return {};
}

Status run(const Arguments& arguments, bool& passed) {
  auto runtime = TRY(open_device(arguments));
  const DeviceMemory::State memory = TRY(runtime->memory());
  print(Json::object({{"device", runtime->description()},
                      {"free", memory.free},
                      {"total", memory.total},
                      {"kernels", std::string(cuda::cuda_architectures())}}));
  const auto backend = make_cuda_backend(std::move(runtime));
  if (arguments.part == "kernels") passed = check(*backend, arguments);
  if (arguments.part != "speed") return {};
  return measure(*backend, arguments.on_host ? small_size() : large_size());
}

}  // namespace
}  // namespace plimsoll

int main(int count, char** words) {
  plimsoll::Arguments arguments;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = words[i];
    if (name == "--device") arguments.on_host = std::string_view(words[i + 1]) == "cuda:host";
    if (name == "--part") arguments.part = words[i + 1];
    if (name == "--seed") arguments.seed = std::strtoull(words[i + 1], nullptr, 10);
    if (name == "--from") arguments.from = std::strtoull(words[i + 1], nullptr, 10);
  }
  if (arguments.part.empty()) {
    std::fputs(plimsoll::kUsage, stderr);
    return plimsoll::kExitUsage;
  }
  bool passed = true;
  const plimsoll::Status ran = plimsoll::run(arguments, passed);
  if (!ran) std::fprintf(stderr, "gpu_check: %s\n", ran.error().message.c_str());
  return ran && passed ? 0 : plimsoll::kExitFailed;
}
