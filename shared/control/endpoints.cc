#include "shared/control/endpoints.h"

#include <fmt/format.h>

namespace plimsoll {

std::string control_endpoint(const std::filesystem::path& runtime) {
  return "ipc://" + (runtime / "control").string();
}

std::string request_endpoint(const std::filesystem::path& runtime, std::int64_t replica,
                             std::int64_t incarnation) {
  return fmt::format("ipc://{}",
                     (runtime / fmt::format("replica-{}-{}", replica, incarnation)).string());
}

}  // namespace plimsoll
