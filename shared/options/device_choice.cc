#include "shared/options/device_choice.h"

#include <algorithm>
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
constexpr std::size_t kGpusMax = 64;
constexpr std::size_t kIndexDigitsMax = 3;
constexpr std::size_t kUuidMax = 96;

Result<Bytes> parse_size(std::string_view text) {
  const Bytes size = TRY_CONTEXT("a simulated device's size: ", parse_bytes(trim(text)));
  if (size >= kSizeMin && size <= kSizeMax) return size;
  return invalid(fmt::format("a simulated device of {} is outside {} to {}", format_bytes(size),
                             format_bytes(kSizeMin), format_bytes(kSizeMax)));
}

bool is_index(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && text.size() <= kIndexDigitsMax && std::ranges::all_of(text, is_digit);
}

// As `nvidia-smi -L` prints it: "GPU-5fd3ab12-…", of a MIG slice "MIG-…".
bool is_uuid(std::string_view text) {
  const auto may_stand_in_one = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '/';
  };
  return (text.starts_with("GPU-") || text.starts_with("MIG-")) && text.size() > 4 &&
         text.size() <= kUuidMax && std::ranges::all_of(text, may_stand_in_one);
}

bool names_gpus(std::string_view text) {
  const std::string_view first = split(text, ',').front();
  return is_index(trim(first)) || is_uuid(trim(first));
}

Result<DeviceChoice> parse_gpus(std::string_view text) {
  DeviceChoice choice{.kind = DeviceKind::cuda, .sizes = {}, .gpus = {}};
  for (const std::string_view word : split(text, ',')) {
    const std::string_view name = trim(word);
    if (!is_index(name) && !is_uuid(name)) {
      return invalid(fmt::format(
          "'{}' is neither a GPU's number nor its UUID (0,1 or GPU-5fd3...; `nvidia-smi -L` prints "
          "both)",
          name));
    }
    if (std::ranges::find(choice.gpus, name) != choice.gpus.end()) {
      return invalid(fmt::format("GPU {} is named twice", name));
    }
    choice.gpus.emplace_back(name);
  }
  if (choice.gpus.size() <= kGpusMax) return choice;
  return invalid(fmt::format("'{}' names more than {} devices", text, kGpusMax));
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
    if (text == device_kind_name(kind)) return DeviceChoice{.kind = kind, .sizes = {}, .gpus = {}};
  }
  constexpr std::string_view kCuda = "cuda:";
  if (text.starts_with(kCuda)) return parse_gpus(text.substr(kCuda.size()));
  if (names_gpus(text)) return parse_gpus(text);
  if (!text.starts_with(kSimulated)) {
    return invalid(fmt::format("'{}' names no kind of device", text));
  }
  DeviceChoice choice{.kind = DeviceKind::simulated, .sizes = {}, .gpus = {}};
  for (const std::string_view size : split(text.substr(kSimulated.size()), ',')) {
    choice.sizes.push_back(TRY(parse_size(size)));
  }
  if (choice.sizes.size() <= kSizesMax) return choice;
  return invalid(fmt::format("'{}' names more than {} devices", text, kSizesMax));
}

}  // namespace plimsoll
