#include "shared/machine/nvml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/shown_text.h"
#include "shared/base/text.h"
#include "shared/machine/process_name.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kDevicesMax = 1024;
constexpr unsigned kLinksMax = 18;
constexpr unsigned kSlicesMax = 64;
constexpr std::size_t kPeersMax = 16;  // whose pairs are asked for
constexpr std::size_t kProcessesMax = 4096;
constexpr std::size_t kSysFileBytesMax = 4096;
// A driver that lists far less than the host's memory as the GPU's own has memory of its own.
constexpr Bytes kDiscreteMin = 2 * kGiB;

Bytes to_bytes(std::uint64_t value) {
  return static_cast<Bytes>(std::min<std::uint64_t>(value, std::numeric_limits<Bytes>::max()));
}

class Reader {
 public:
  Reader(const NvmlApi& api, Bytes host_available, const fs::path& root, LostGpus lost)
      : api_(api), host_available_(host_available), root_(root), lost_(lost) {}

  Result<NvmlDevices> read() {
    unsigned count = 0;
    TRY(check(api_.device_count(&count), "count the GPUs"));
    NvmlDevices found;
    bool all_linked = count > 1;
    std::vector<NvmlHandle> handles;
    for (unsigned i = 0; i < std::min(count, kDevicesMax); ++i) {
      NvmlHandle handle = nullptr;
      const NvmlReturn opened = api_.device_at(i, &handle);
      const std::size_t before = found.devices.size();
      const bool is_gone = is_out_of_use(opened) || is_lost(handle);
      Status added;
      if (!is_gone) added = check(opened, fmt::format("open GPU {}", i));
      if (!is_gone && added) added = add(handle, i, found.devices);
      if (!added && lost_ == LostGpus::refused) return added.error();
      if (is_gone || !added) {
        found.devices.resize(before);
        found.devices.emplace_back().name = fmt::format("GPU {}", i);
        continue;
      }
      all_linked = all_linked && has_link(handle);
      handles.push_back(handle);
    }
    if (all_linked) found.link = DeviceLink::nvlink;
    found.peers = peers(handles);
    if (all_linked) found.peers.path = PeerPath::nvlink;
    return found;
  }

 private:
  Status check(NvmlReturn result, const std::string& what) const {
    if (result == kNvmlSuccess) return {};
    const char* text = api_.error_text(result);
    return unavailable(fmt::format("ask the NVIDIA driver to {}: {}", what,
                                   text == nullptr ? "error " + std::to_string(result) : text));
  }

  bool is_lost(NvmlHandle handle) const {
    NvmlMemory memory{};
    return handle != nullptr && is_out_of_use(api_.memory(handle, &memory));
  }

  // The GPU, or where it is cut, each of its slices.
  Status add(NvmlHandle handle, unsigned index, std::vector<Device>& devices) const {
    unsigned mode = 0;
    unsigned pending = 0;
    const bool is_cut = api_.mig_mode != nullptr && api_.mig_at != nullptr &&
                        api_.mig_mode(handle, &mode, &pending) == kNvmlSuccess && mode == 1;
    const Device whole = TRY(device(handle, fmt::format("GPU {}", index)));
    if (!is_cut) {
      devices.push_back(whole);
      return {};
    }
    unsigned slices = kSlicesMax;
    if (api_.mig_count_max != nullptr) {
      TRY(check(api_.mig_count_max(handle, &slices), "count MIG slices"));
    }
    for (unsigned i = 0; i < std::min(slices, kSlicesMax); ++i) {
      NvmlHandle slice = nullptr;
      if (api_.mig_at(handle, i, &slice) != kNvmlSuccess) continue;  // no slice of that number
      Device one = TRY(device(slice, fmt::format("MIG slice {} of GPU {}", i, index)));
      // A slice's share of the multiprocessors is not in this interface; its memory says about it.
      one.compute_major = whole.compute_major;
      one.compute_minor = whole.compute_minor;
      if (whole.memory_total > 0) {
        one.multiprocessors = static_cast<int>(static_cast<double>(whole.multiprocessors) *
                                               static_cast<double>(one.memory_total) /
                                               static_cast<double>(whole.memory_total));
      }
      one.memory_rate = whole.memory_total > 0
                            ? whole.memory_rate * static_cast<double>(one.memory_total) /
                                  static_cast<double>(whole.memory_total)
                            : 0;
      one.numa_node = whole.numa_node;
      devices.push_back(std::move(one));
    }
    return {};
  }

  Result<Device> device(NvmlHandle handle, const std::string& which) const {
    Device device;
    std::array<char, 128> text{};
    TRY(check(api_.name(handle, text.data(), text.size()), "name " + which));
    device.name = shown_line(text.data());
    text.fill('\0');
    TRY(check(api_.uuid(handle, text.data(), text.size()), "tell the UUID of " + which));
    device.uuid = shown_line(text.data());
    read_capability(handle, device);
    TRY(read_memory(handle, which, device));
    NvmlBar1 bar1{};
    if (api_.bar1 != nullptr && api_.bar1(handle, &bar1) == kNvmlSuccess && bar1.total > 0) {
      device.bar1 = to_bytes(bar1.total);
    }
    device.numa_node = numa_node(handle);
    read_rates(handle, device);
    read_processes(handle, device);
    return device;
  }

  Status read_memory(NvmlHandle handle, const std::string& which, Device& device) const {
    NvmlMemory memory{};
    const NvmlReturn result = api_.memory(handle, &memory);
    device.memory_total = to_bytes(memory.total);
    device.memory_free = to_bytes(memory.free);
    // GB10 and Jetson have no memory of their own, and the driver says so by an error or by
    // next to nothing.
    if (result != kNvmlSuccess || device.memory_total < kDiscreteMin) {
      const bool knows_host = is_integrated(device);
      if (!knows_host) return check(result, "tell the memory of " + which);
      device.is_unified = true;
      device.memory_total = std::max(host_total(), host_available_);
      device.memory_free = host_available_;
    }
    return {};
  }

  static bool is_integrated(const Device& device) {
    const std::string name = lower(device.name);
    for (const std::string_view known : {"gb10", "orin", "thor", "tegra", "xavier"}) {
      if (name.find(known) != std::string::npos) return true;
    }
    return false;
  }

  Bytes host_total() const {
    const Result<std::string> meminfo = read_file(root_ / "proc/meminfo", 64 * 1024);
    if (!meminfo) return 0;
    for (const std::string_view line : split(*meminfo, '\n')) {
      if (!line.starts_with("MemTotal:")) continue;
      const std::string_view text = trim(line.substr(9));
      Bytes kib = 0;
      std::from_chars(text.data(), text.data() + text.size(), kib);
      return kib * kKiB;
    }
    return 0;
  }

  void read_capability(NvmlHandle handle, Device& device) const {
    if (api_.capability != nullptr) {
      if (api_.capability(handle, &device.compute_major, &device.compute_minor) != kNvmlSuccess) {
        device.compute_major = 0;
      }
    }
    unsigned cores = 0;
    if (api_.cores == nullptr || api_.cores(handle, &cores) != kNvmlSuccess) return;
    // FP32 lanes of a multiprocessor: 64 in the data-centre parts of Volta and Ampere (7.x, 8.0).
    const bool is_narrow =
        device.compute_major == 7 || (device.compute_major == 8 && device.compute_minor == 0);
    device.multiprocessors = static_cast<int>(cores / (is_narrow ? 64 : 128));
  }

  void read_processes(NvmlHandle handle, Device& device) const {
    if (api_.processes == nullptr) return;
    std::vector<NvmlProcess> list(64);
    auto count = static_cast<unsigned>(list.size());
    NvmlReturn result = api_.processes(handle, &count, list.data());
    if (result == kNvmlInsufficientSize) {  // new ones may come between the two calls
      list.resize(std::min<std::size_t>(count + 64, kProcessesMax));
      count = static_cast<unsigned>(list.size());
      result = api_.processes(handle, &count, list.data());
    }
    // A virtual GPU or a container may not tell: who else is there is not known then.
    if (result != kNvmlSuccess) return;
    list.resize(std::min<std::size_t>(count, list.size()));
    for (const NvmlProcess& process : list) {
      DeviceProcess one{.pid = process.pid, .bytes = std::nullopt, .user = {}, .command = {}};
      if (process.bytes != std::numeric_limits<std::uint64_t>::max()) {
        one.bytes = to_bytes(process.bytes);
      }
      const ProcessName name = process_name(process.pid, root_);
      one.user = name.user;
      one.command = name.command;
      device.processes.push_back(std::move(one));
    }
  }

  int numa_node(NvmlHandle handle) const {
    NvmlPci pci{};
    if (api_.pci == nullptr || api_.pci(handle, &pci) != kNvmlSuccess) return 0;
    const fs::path file = root_ / "sys/bus/pci/devices" /
                          fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device) /
                          "numa_node";
    const Result<std::string> text = read_file(file, kSysFileBytesMax);
    int node = 0;
    if (text) {
      const std::string_view digits = trim(*text);
      std::from_chars(digits.data(), digits.data() + digits.size(), node);
    }
    return std::max(0, node);  // -1: the machine has one
  }

  // The longest way of any two, and whether all may reach each other. A driver that does not say
  // leaves it unknown.
  PeerLinks peers(const std::vector<NvmlHandle>& handles) const {
    PeerLinks links;
    const std::size_t count = std::min(handles.size(), kPeersMax);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = i + 1; j < count; ++j) {
        links.path = std::max(links.path, path_between(handles[i], handles[j]));
        for (const int way : {kNvmlPeerRead, kNvmlPeerWrite}) {
          int status = 0;
          if (api_.peer_status == nullptr ||
              api_.peer_status(handles[i], handles[j], way, &status) != kNvmlSuccess) {
            continue;
          }
          links.has_access = links.has_access.value_or(true) && status == 0;
        }
      }
    }
    return links;
  }

  PeerPath path_between(NvmlHandle a, NvmlHandle b) const {
    int level = 0;
    if (api_.ancestor == nullptr || api_.ancestor(a, b, &level) != kNvmlSuccess) {
      return PeerPath::unknown;
    }
    if (level <= kNvmlOneSwitch) return PeerPath::one_switch;
    if (level <= kNvmlSwitches) return PeerPath::switches;
    return level <= kNvmlNode ? PeerPath::host_bridge : PeerPath::sockets;
  }

  // Two words a clock, which is what makers count too.
  void read_rates(NvmlHandle handle, Device& device) const {
    unsigned bits = 0;
    unsigned mhz = 0;
    if (api_.bus_bits != nullptr && api_.clock_max != nullptr &&
        api_.bus_bits(handle, &bits) == kNvmlSuccess &&
        api_.clock_max(handle, kNvmlMemoryClock, &mhz) == kNvmlSuccess) {
      device.memory_rate = 2.0 * mhz * 1e6 * bits / 8;
    }
    unsigned value = 0;
    if (api_.pcie_generation != nullptr && api_.pcie_generation(handle, &value) == kNvmlSuccess) {
      device.pcie_generation = static_cast<int>(std::min(value, 16U));
    }
    if (api_.pcie_lanes != nullptr && api_.pcie_lanes(handle, &value) == kNvmlSuccess) {
      device.pcie_lanes = static_cast<int>(std::min(value, 64U));
    }
  }

  bool has_link(NvmlHandle handle) const {
    if (api_.link_state == nullptr) return false;
    for (unsigned link = 0; link < kLinksMax; ++link) {
      unsigned is_active = 0;
      if (api_.link_state(handle, link, &is_active) == kNvmlSuccess && is_active == 1) return true;
    }
    return false;
  }

  const NvmlApi& api_;
  Bytes host_available_;
  fs::path root_;
  LostGpus lost_;
};

}  // namespace

Result<NvmlDevices> read_nvml(const NvmlApi& api, Bytes host_available, const fs::path& root,
                              LostGpus lost) {
  const NvmlReturn started = api.init();
  if (started != kNvmlSuccess) {
    const char* text = api.error_text(started);
    return unavailable(fmt::format("ask the NVIDIA driver for GPUs: {}",
                                   text == nullptr ? std::to_string(started) : text));
  }
  Result<NvmlDevices> found = Reader(api, host_available, root, lost).read();
  api.shutdown();
  return found;
}

Result<NvmlDevices> query_nvml(Bytes host_available, LostGpus lost) {
  const Result<NvmlLibrary> library = NvmlLibrary::open();
  if (!library) {
    if (library.error().code == Code::not_found) return NvmlDevices{};
    return library.error();
  }
  return read_nvml(library->api(), host_available, "/", lost);
}

}  // namespace plimsoll
