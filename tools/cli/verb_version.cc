#include <ostream>

#include <fmt/format.h>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cuda/modules.h"
#include "shared/base/json.h"
#include "shared/base/text.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr CpuPath kPaths[] = {CpuPath::scalar, CpuPath::avx2, CpuPath::avx512};

}  // namespace

Result<int> run_version(const Invocation& call) {
  const std::string commit = PLIMSOLL_COMMIT;  // empty outside a repository
  const std::string compiler = "g++ " __VERSION__;
  const CpuFeatures features = detect_cpu_features();
  const std::string best = cpu_path_name(best_path(features));
  std::vector<std::string> paths;
  for (const CpuPath path : kPaths) paths.emplace_back(cpu_path_name(path));
  const std::string gpus(cuda::cuda_architectures());
  if (call.line.json) {
    Json names = Json::array();
    for (const std::string& path : paths) names.push(path);
    call.console.out << dump_json(Json::object({{"version", PLIMSOLL_VERSION},
                                                {"commit", commit},
                                                {"compiler", compiler},
                                                {"cpu_paths", std::move(names)},
                                                {"cpu_path_best", best},
                                                {"cuda", !gpus.empty()},
                                                {"cuda_architectures", gpus}}),
                                  2)
                     << std::endl;
    return kExitOk;
  }
  call.console.out << fmt::format(
      "plimsoll {}{}\ncompiler: {}\ncpu paths: {}; best on this machine: {}\ncuda: {}\n",
      PLIMSOLL_VERSION, commit.empty() ? "" : fmt::format(" ({})", commit), compiler,
      join(paths, ", "), best, gpus.empty() ? "not built" : fmt::format("kernels for {}", gpus));
  return kExitOk;
}

}  // namespace plimsoll
