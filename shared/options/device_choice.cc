#include "shared/options/device_choice.h"

#include <array>

#include <fmt/format.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::array<DeviceKind, 5> kKinds = {DeviceKind::automatic, DeviceKind::cpu,
                                              DeviceKind::cuda, DeviceKind::cuda_host,
                                              DeviceKind::simulated};
constexpr std::size_t kSizesMax = 64;
constexpr Bytes kSizeMin = kMiB;
constexpr Bytes kSizeMax = 16 * 1024 * kGiB;
constexpr std::string_view kSimulated = "simulated:";

Result<Bytes> parse_size(std::string_view text) {
  const Bytes size = TRY_CONTEXT("a simulated device's size: ", parse_bytes(trim(text)));
  if (size >= kSizeMin && size <= kSizeMax) return size;
  return invalid(fmt::format("a simulated device of {} is outside {} to {}", format_bytes(size),
                             format_bytes(kSizeMin), format_bytes(kSizeMax)));
}

}  // namespace

const char* device_kind_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::automatic:
      return "auto";
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::cuda_host:
      return "cuda:host";
    case DeviceKind::simulated:
      return "simulated";
  }
  return "auto";
}

Result<DeviceChoice> parse_device_choice(std::string_view text) {
  for (const DeviceKind kind : kKinds) {
    if (text == device_kind_name(kind)) return DeviceChoice{.kind = kind, .sizes = {}};
  }
  if (!text.starts_with(kSimulated)) {
    return invalid(fmt::format("'{}' names no kind of device", text));
  }
  DeviceChoice choice{.kind = DeviceKind::simulated, .sizes = {}};
  for (const std::string_view size : split(text.substr(kSimulated.size()), ',')) {
    choice.sizes.push_back(TRY(parse_size(size)));
  }
  if (choice.sizes.size() <= kSizesMax) return choice;
  return invalid(fmt::format("'{}' names more than {} devices", text, kSizesMax));
}

}  // namespace plimsoll
