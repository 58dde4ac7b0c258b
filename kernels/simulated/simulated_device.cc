#include "kernels/simulated/simulated_device.h"

#include <algorithm>

#include <fmt/format.h>

#include "shared/base/check.h"

namespace plimsoll {

Status SimulatedDevice::take(std::string_view term, Bytes bytes) {
  CHECK(bytes >= 0);
  if (bytes > free()) {
    return Error{
        Code::does_not_fit,
        fmt::format("the simulated device is out of memory: {} needs {} and {} of {} are free{}",
                    term, format_bytes(bytes), format_bytes(free()), format_bytes(memory_),
                    neighbour_ > 0
                        ? fmt::format(" (a neighbour holds {})", format_bytes(neighbour_))
                        : "")};
  }
  taken_ += bytes;
  terms_[std::string(term)] += bytes;
  return {};
}

void SimulatedDevice::take_by_neighbour(Bytes bytes) {
  CHECK(bytes >= 0);
  neighbour_ += std::min(bytes, free());
}

}  // namespace plimsoll
