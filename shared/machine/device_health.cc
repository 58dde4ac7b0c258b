#include "shared/machine/device_health.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr std::size_t kEventsMax = 64;  // of one wait: a GPU that fails says many

struct XidMeaning {
  std::uint64_t xid;
  std::string_view meaning;
};
// NVIDIA, "XID Errors": those after which the GPU, and not the program, has to be seen to. Not 63
// (rows will be remapped at the next reset) nor 154 (what is to be done has changed, also to
// nothing): what runs goes on, and what has gone wrong says so itself.
constexpr std::array kXids = {
    XidMeaning{46, "it has stopped processing"},
    XidMeaning{48, "a memory error of two bits"},
    XidMeaning{61, "its microcontroller has stopped"},
    XidMeaning{62, "its microcontroller has halted"},
    XidMeaning{64, "bad memory could not be taken out of use"},
    XidMeaning{74, "an NVLink error"},
    XidMeaning{79, "it has fallen off the bus"},
    XidMeaning{94, "a memory error that could not be corrected, contained in one program"},
    XidMeaning{95, "a memory error that could not be corrected, nor contained"},
    XidMeaning{109, "it does not switch between programs any more"},
    XidMeaning{110, "a security fault"},
    XidMeaning{119, "its system processor does not answer"},
    XidMeaning{120, "its system processor has failed"},
    XidMeaning{136, "NVLink could not be trained"},
    XidMeaning{140, "a memory error that could not be corrected"},
    XidMeaning{143, "it could not be initialised"},
};

}  // namespace

std::optional<std::string_view> xid_of_device(std::uint64_t xid) {
  const auto* found = std::ranges::find(kXids, xid, &XidMeaning::xid);
  if (found == kXids.end()) return std::nullopt;
  return found->meaning;
}

Result<DeviceHealth> DeviceHealth::start(const NvmlApi& api) {
  const NvmlReturn started = api.init();
  if (started != kNvmlSuccess) {
    const char* text = api.error_text(started);
    return unavailable(fmt::format("ask the NVIDIA driver how its GPUs are: {}",
                                   text == nullptr ? std::to_string(started) : text));
  }
  DeviceHealth health(api);
  health.make_events();
  return health;
}

void DeviceHealth::make_events() {
  const bool tells = api_->event_set_create != nullptr && api_->event_set_free != nullptr &&
                     api_->event_register != nullptr && api_->event_wait != nullptr;
  if (!tells || events_ != nullptr) return;
  if (api_->event_set_create(&events_) != kNvmlSuccess) events_ = nullptr;
  for (const Watched& one : watched_) listen_to(one);
}

// One that tells of nothing is looked at when a worker dies on it.
void DeviceHealth::listen_to(const Watched& one) const {
  if (events_ == nullptr || one.has_failed) return;
  std::uint64_t types = kNvmlEventXid | kNvmlEventDoubleBitEcc;
  std::uint64_t supported = 0;
  const bool is_known = api_->event_supported != nullptr &&
                        api_->event_supported(one.handle, &supported) == kNvmlSuccess;
  if (is_known) types &= supported;
  if (types != 0) (void)api_->event_register(one.handle, types, events_);
}

DeviceHealth::DeviceHealth(DeviceHealth&& other) noexcept
    : api_(std::exchange(other.api_, nullptr)),
      events_(std::exchange(other.events_, nullptr)),
      watched_(std::move(other.watched_)) {}

DeviceHealth::~DeviceHealth() {
  if (api_ == nullptr) return;
  if (events_ != nullptr) api_->event_set_free(events_);
  api_->shutdown();
}

void DeviceHealth::watch(const std::string& uuid) {
  std::erase_if(watched_, [&](const Watched& one) { return one.uuid == uuid && one.has_failed; });
  const bool is_watched = std::ranges::find(watched_, uuid, &Watched::uuid) != watched_.end();
  if (is_watched || api_->device_by_uuid == nullptr) return;
  Watched one{.uuid = uuid};
  if (api_->device_by_uuid(uuid.c_str(), &one.handle) != kNvmlSuccess) return;
  NvmlHandle parent = nullptr;  // which is what events are of
  const bool is_slice = api_->mig_parent != nullptr && uuid.starts_with("MIG-") &&
                        api_->mig_parent(one.handle, &parent) == kNvmlSuccess;
  if (is_slice) one.handle = parent;
  make_events();
  listen_to(one);
  one.ecc_errors = ecc_errors(one.handle);
  one.had_repairs = repairs(one.handle).has_value();
  watched_.push_back(std::move(one));
}

std::vector<DeviceFault> DeviceHealth::wait(milliseconds longest) {
  std::vector<DeviceFault> faults;
  auto left = static_cast<unsigned>(longest.count());
  for (std::size_t i = 0; i < kEventsMax && events_ != nullptr; ++i) {
    NvmlEventData event{};
    const NvmlReturn result = api_->event_wait(events_, &event, left);
    left = 0;  // only what is there already comes with the first
    if (result == kNvmlTimeout) break;
    if (result != kNvmlSuccess) {
      // Of which GPU it does not say: each is asked. Without events from here on.
      api_->event_set_free(std::exchange(events_, nullptr));
      std::ranges::move(examine(), std::back_inserter(faults));
      return faults;
    }
    std::string what;
    if (event.type == kNvmlEventDoubleBitEcc) {
      what = "a memory error of two bits";
    } else if (event.type == kNvmlEventXid) {
      const std::optional<std::string_view> meaning = xid_of_device(event.data);
      if (!meaning) continue;
      what = fmt::format("Xid {}: {}", event.data, *meaning);
    } else {
      continue;
    }
    for (Watched& one : watched_) {
      if (one.handle != event.device) continue;
      one.has_failed = true;
      faults.push_back({one.uuid, what});
    }
  }
  return faults;
}

std::vector<DeviceFault> DeviceHealth::examine() {
  std::vector<DeviceFault> faults;
  for (Watched& one : watched_) {
    if (one.has_failed) continue;
    const std::size_t before = faults.size();
    NvmlMemory memory{};
    if (const NvmlReturn result = api_->memory(one.handle, &memory); is_out_of_use(result)) {
      faults.push_back({one.uuid, result == kNvmlGpuIsLost
                                      ? "the driver has lost it"
                                      : "the driver does nothing with it until it is reset"});
      one.has_failed = true;
      continue;
    }
    const std::uint64_t errors = ecc_errors(one.handle);
    const std::optional<std::string> waiting = repairs(one.handle);
    if (errors > one.ecc_errors) {
      faults.push_back({one.uuid, fmt::format("{} memory errors that could not be corrected",
                                              errors - one.ecc_errors)});
    } else if (waiting && !one.had_repairs) {
      faults.push_back({one.uuid, *waiting});
    }
    // Neither goes away without a reset, before which nothing is watched: where it is told no more,
    // the driver has not answered this time.
    one.ecc_errors = std::max(one.ecc_errors, errors);
    one.had_repairs = one.had_repairs || waiting.has_value();
    one.has_failed = faults.size() > before;
  }
  return faults;
}

std::uint64_t DeviceHealth::ecc_errors(NvmlHandle handle) const {
  std::uint64_t count = 0;
  const bool is_known =
      api_->ecc_errors != nullptr &&
      api_->ecc_errors(handle, kNvmlUncorrected, kNvmlVolatile, &count) == kNvmlSuccess;
  return is_known ? count : 0;
}

std::optional<std::string> DeviceHealth::repairs(NvmlHandle handle) const {
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned is_pending = 0;
  unsigned has_failed = 0;
  if (api_->remapped_rows != nullptr &&
      api_->remapped_rows(handle, &corrected, &uncorrected, &is_pending, &has_failed) ==
          kNvmlSuccess) {
    if (has_failed != 0) return "rows of its memory could not be remapped";
    if (is_pending != 0) return "rows of its memory are to be remapped, which needs a reset";
  }
  int is_retiring = 0;
  if (api_->retired_pending != nullptr &&
      api_->retired_pending(handle, &is_retiring) == kNvmlSuccess && is_retiring != 0) {
    return "pages of its memory are to be retired, which needs a reset";
  }
  return std::nullopt;
}

}  // namespace plimsoll
