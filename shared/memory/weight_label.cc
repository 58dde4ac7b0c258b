#include "shared/memory/weight_label.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/stat.h>

namespace plimsoll {
namespace {

// To be raised with every change of kernels/cpu/packed_layout.h, or of what is packed in which
// order: a daemon may be a newer build than the one that left weights with the service manager.
constexpr const char* kLayout = "cpu-2";

std::string range(const Range& range) { return fmt::format("{}-{}", range.begin, range.end); }

}  // namespace

Result<std::string> weight_label(const std::string& model_path, const RankPlan& plan) {
  struct stat file {};
  if (::stat(model_path.c_str(), &file) != 0) {
    return not_found(fmt::format("{}: {}", model_path, std::strerror(errno)));
  }
  const RankShard& shard = plan.shard;
  return fmt::format(
      "{} file {}:{} {} {}.{:09} {}.{:09} heads {} {} ffn {} {} {} vocab {} bytes {}", kLayout,
      file.st_dev, file.st_ino, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec,
      file.st_ctim.tv_sec, file.st_ctim.tv_nsec, range(shard.heads), range(shard.kv_heads),
      range(shard.ffn), range(shard.expert_ffn), range(shard.shared_ffn), range(shard.vocab),
      plan.packed_weights());
}

}  // namespace plimsoll
