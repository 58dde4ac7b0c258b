#include "shared/machine/machine_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/shown_text.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::size_t kFileBytesMax = 4 * 1024 * 1024;
constexpr std::int64_t kCpusMax = 65'536;
constexpr Bytes kSizeMax = 1024 * 1024 * kGiB;
constexpr double kGiga = 1e9;
constexpr double kBytesPerUs = 1e3;  // of a GB/s

// Members of one object. Every key must be known, so that a typing mistake is no silent default.
class Keys {
 public:
  Keys(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  Status require_object() const {
    if (object_.is_object()) return {};
    return invalid(fmt::format("{} must be an object, not {}", where_, object_.type_name()));
  }
  Status text(std::string_view key, std::string& value) {
    const Json* found = take(key);
    if (found == nullptr) return {};
    if (!found->is_string()) return mistake(key, "text");
    value = shown(found->as_string());  // of others' processes, too
    std::ranges::replace(value, '\n', ' ');
    return {};
  }
  Status size(std::string_view key, Bytes& value) {
    const Json* found = take(key);
    if (found == nullptr) return {};
    if (found->is_string()) {
      value = TRY_CONTEXT(fmt::format("{}.{}: ", where_, key), parse_bytes(found->as_string()));
    } else if (found->is_integer()) {
      value = found->as_int();
    } else {
      return mistake(key, "a size (\"94GiB\") or bytes");
    }
    if (value >= 0 && value <= kSizeMax) return {};
    return mistake(key, "a size that there is");
  }
  Status size(std::string_view key, std::optional<Bytes>& value) {
    if (object_.find(key) == nullptr) return {};
    Bytes bytes = 0;
    TRY(size(key, bytes));
    value = bytes;
    return {};
  }
  template <typename Int>
  Status count(std::string_view key, Int& value, std::int64_t low, std::int64_t high) {
    const Json* found = take(key);
    if (found == nullptr) return {};
    if (!found->is_integer() || found->as_int() < low || found->as_int() > high) {
      return mistake(key, fmt::format("an integer from {} to {}", low, high));
    }
    value = static_cast<Int>(found->as_int());
    return {};
  }
  Status number(std::string_view key, double& value) {
    const Json* found = take(key);
    if (found == nullptr) return {};
    if (!found->is_number() || !(found->as_double() >= 0)) return mistake(key, "a number");
    value = found->as_double();
    return {};
  }
  Status flag(std::string_view key, bool& value) {
    const Json* found = take(key);
    if (found == nullptr) return {};
    if (!found->is_bool()) return mistake(key, "true or false");
    value = found->as_bool();
    return {};
  }
  const Json* take(std::string_view key) {
    known_.push_back(key);
    const Json* found = object_.find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }
  Status check_all_known() const {
    for (const auto& [key, value] : object_.as_object()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string meant = nearest(key, known_);
      return invalid(fmt::format("{} has no key '{}'{}", where_, key,
                                 meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant)));
    }
    return {};
  }
  Error mistake(std::string_view key, std::string_view expected) const {
    return invalid(fmt::format("{}.{} must be {}", where_, key, expected));
  }

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string_view> known_;
};

// CPUs 0 to count-1 over nodes of equal size.
void number_cpus(Machine& machine, std::int64_t cpus, std::int64_t nodes) {
  machine.nodes.clear();
  for (std::int64_t node = 0; node < nodes; ++node) {
    machine.nodes.push_back({.id = static_cast<int>(node), .cpus = {}});
  }
  machine.cpus.clear();
  for (std::int64_t cpu = 0; cpu < cpus; ++cpu) {
    machine.cpus.push_back(static_cast<int>(cpu));
    machine.nodes[static_cast<std::size_t>(cpu * nodes / cpus)].cpus.push_back(
        static_cast<int>(cpu));
  }
}

Status read_host(const Json& json, Machine& machine) {
  Keys in(json, "host");
  TRY(in.require_object());
  std::int64_t cpus = 1;
  std::int64_t nodes = 1;
  TRY(in.text("cpu_name", machine.cpu_name));
  TRY(in.size("memory", machine.memory_total));
  machine.memory_available = machine.memory_total;
  TRY(in.size("available", machine.memory_available));
  TRY(in.size("cgroup_limit", machine.cgroup_limit));
  TRY(in.size("cgroup_used", machine.cgroup_used));
  TRY(in.count("cpus", cpus, 1, kCpusMax));
  TRY(in.count("numa_nodes", nodes, 1, cpus));
  TRY(in.number("cpu_quota", machine.cpu_quota));
  number_cpus(machine, cpus, nodes);
  return in.check_all_known();
}

Status read_capability(Keys& in, Device& device) {
  std::string text;
  TRY(in.text("compute_capability", text));
  if (text.empty()) return {};
  const char* end = text.data() + text.size();
  const auto [point, failure] = std::from_chars(text.data(), end, device.compute_major);
  if (failure == std::errc() && point != end && *point == '.') {
    const auto [rest, second] = std::from_chars(point + 1, end, device.compute_minor);
    if (second == std::errc() && rest == end) return {};
  }
  return in.mistake("compute_capability", "like \"9.0\"");
}

Status read_process(const Json& json, Device& device) {
  Keys in(json, "devices[].processes[]");
  TRY(in.require_object());
  DeviceProcess process;
  TRY(in.count("pid", process.pid, 1, 1LL << 31));
  TRY(in.size("bytes", process.bytes));
  TRY(in.text("user", process.user));
  TRY(in.text("command", process.command));
  device.processes.push_back(std::move(process));
  return in.check_all_known();
}

Status read_device(const Json& json, Machine& machine) {
  Keys in(json, "devices[]");
  TRY(in.require_object());
  Device device;
  std::int64_t count = 1;
  TRY(in.count("count", count, 1, kDevicesMax));
  TRY(in.text("name", device.name));
  TRY(in.text("uuid", device.uuid));
  TRY(in.size("memory", device.memory_total));
  TRY(in.size("cuda_total", device.cuda_total));
  device.memory_free = device.total_to_share();
  const bool is_free_given = in.take("free") != nullptr;
  TRY(in.size("free", device.memory_free));
  TRY(in.size("free_before_weights", device.free_before_weights));
  TRY(read_capability(in, device));
  TRY(in.count("multiprocessors", device.multiprocessors, 1, 4096));
  TRY(in.size("bar1", device.bar1));
  TRY(in.size("context", device.context));
  double giga = 0;
  TRY(in.number("memory_gb_per_s", giga));
  device.memory_rate = giga * kGiga;
  TRY(in.count("pcie_generation", device.pcie_generation, 1, 16));
  TRY(in.count("pcie_lanes", device.pcie_lanes, 1, 64));
  TRY(in.flag("unified", device.is_unified));
  TRY(in.flag("simulated", device.is_simulated));
  TRY(in.count("numa_node", device.numa_node, 0, 4096));
  if (const Json* processes = in.take("processes")) {
    if (!processes->is_array()) return in.mistake("processes", "an array");
    for (const Json& process : processes->as_array()) TRY(read_process(process, device));
  }
  TRY(in.check_all_known());
  if (!is_free_given) {
    for (const DeviceProcess& process : device.processes) {
      device.memory_free = std::max<Bytes>(0, device.memory_free - process.bytes.value_or(0));
    }
  }
  if (device.memory_total == 0) return in.mistake("memory", "given");
  if (device.total_to_share() > device.memory_total) {
    return in.mistake("cuda_total", "at most its memory");
  }
  if (device.memory_free > device.memory_total) return in.mistake("free", "at most its memory");
  if (device.memory_free > device.total_to_share()) {
    return in.mistake("free", "at most its cuda_total");
  }
  if (device.free_before_weights.value_or(0) > device.memory_free) {
    return in.mistake("free_before_weights", "at most what is free");
  }
  const std::int64_t devices = std::ssize(machine.devices);
  if (devices + count > kDevicesMax) return in.mistake("count", "4,096 devices in all, at most");
  machine.devices.insert(machine.devices.end(), static_cast<std::size_t>(count), device);
  return {};
}

constexpr std::array<PeerPath, 5> kPaths = {PeerPath::nvlink, PeerPath::one_switch,
                                            PeerPath::switches, PeerPath::host_bridge,
                                            PeerPath::sockets};

Status read_peers(const Json& json, Machine& machine) {
  Keys in(json, "peers");
  TRY(in.require_object());
  PeerLinks& peers = machine.peers;
  std::string path;
  TRY(in.text("path", path));
  if (!path.empty()) {
    const auto found = std::ranges::find_if(
        kPaths, [&](PeerPath candidate) { return path == peer_path_name(candidate); });
    if (found == kPaths.end()) {
      return in.mistake("path", "\"nvlink\", \"pix\", \"pxb\", \"phb\" or \"sys\"");
    }
    peers.path = *found;
  }
  if (json.find("access") != nullptr) {
    bool has_access = false;
    TRY(in.flag("access", has_access));
    peers.has_access = has_access;
  }
  TRY(in.number("latency_us", peers.latency_us));
  double giga = 0;
  TRY(in.number("gb_per_s", giga));
  peers.bytes_per_us = giga * kBytesPerUs;
  giga = 0;
  TRY(in.number("gb_per_s_busy", giga));
  peers.bytes_per_us_busy = giga * kBytesPerUs;
  if ((peers.path == PeerPath::nvlink) != (machine.link == DeviceLink::nvlink) &&
      peers.path != PeerPath::unknown) {
    return in.mistake("path", fmt::format("one of link {}", device_link_name(machine.link)));
  }
  return in.check_all_known();
}

Json peers_to_json(const PeerLinks& peers) {
  Json json = Json::object();
  if (peers.path != PeerPath::unknown) json.set("path", peer_path_name(peers.path));
  if (peers.has_access) json.set("access", *peers.has_access);
  if (peers.latency_us > 0) json.set("latency_us", peers.latency_us);
  if (peers.bytes_per_us > 0) json.set("gb_per_s", peers.bytes_per_us / kBytesPerUs);
  if (peers.bytes_per_us_busy > 0) {
    json.set("gb_per_s_busy", peers.bytes_per_us_busy / kBytesPerUs);
  }
  return json;
}

Status read_learned(const Json& json, Machine& machine) {
  if (!json.is_object()) return invalid("learned must be an object of sizes by term");
  for (const auto& [term, value] : json.as_object()) {
    Keys in(json, "learned");
    if (term == "kv") return invalid("learned: kv is what the plan decides; it cannot be learned");
    LearnedTerm learned{.term = term, .bytes = 0, .from = kOfDescription};
    TRY(in.size(term, learned.bytes));
    // A term that is needed and said to be nothing would be found missing only under load.
    if (learned.bytes == 0)
      return in.mistake(term, "more than nothing; leave it out to compute it");
    machine.learned.push_back(std::move(learned));
  }
  return {};
}

Result<Machine> machine_of(const Json& json) {
  Keys in(json, "the machine");
  TRY(in.require_object());
  Machine machine;
  machine.cpu_name = "described CPU";
  number_cpus(machine, 1, 1);
  TRY(in.text("name", machine.name));
  std::string about;
  TRY(in.text("about", about));
  std::string link = device_link_name(DeviceLink::pcie);
  TRY(in.text("link", link));
  if (link != "pcie" && link != "nvlink") return in.mistake("link", "\"pcie\" or \"nvlink\"");
  machine.link = link == "nvlink" ? DeviceLink::nvlink : DeviceLink::pcie;
  if (const Json* peers = in.take("peers")) TRY(read_peers(*peers, machine));
  if (const Json* host = in.take("host")) TRY(read_host(*host, machine));
  if (const Json* devices = in.take("devices")) {
    if (!devices->is_array()) return in.mistake("devices", "an array");
    for (const Json& device : devices->as_array()) TRY(read_device(device, machine));
  }
  // Page cache counts as used on such a device, and the host gives it up.
  for (Device& device : machine.devices) {
    if (device.is_unified && machine.memory_total > 0) {
      device.memory_free = std::min(device.memory_total, machine.memory_available);
    }
  }
  if (const Json* learned = in.take("learned")) TRY(read_learned(*learned, machine));
  TRY(in.check_all_known());
  if (machine.memory_total == 0 && machine.devices.empty()) {
    return invalid("the machine has neither host.memory nor devices");
  }
  return machine;
}

Json device_to_json(const Device& device) {
  Json json = Json::object({{"name", device.name},
                            {"memory", device.memory_total},
                            {"free", device.memory_free},
                            {"unified", device.is_unified},
                            {"simulated", device.is_simulated},
                            {"numa_node", device.numa_node}});
  if (!device.uuid.empty()) json.set("uuid", device.uuid);
  if (device.cuda_total) json.set("cuda_total", *device.cuda_total);
  if (device.free_before_weights) json.set("free_before_weights", *device.free_before_weights);
  if (device.compute_major > 0) {
    json.set("compute_capability",
             fmt::format("{}.{}", device.compute_major, device.compute_minor));
  }
  if (device.multiprocessors > 0) json.set("multiprocessors", device.multiprocessors);
  if (device.bar1) json.set("bar1", *device.bar1);
  if (device.context) json.set("context", *device.context);
  if (device.memory_rate > 0) json.set("memory_gb_per_s", device.memory_rate / kGiga);
  if (device.pcie_generation > 0) json.set("pcie_generation", device.pcie_generation);
  if (device.pcie_lanes > 0) json.set("pcie_lanes", device.pcie_lanes);
  if (device.processes.empty()) return json;
  Json processes = Json::array();
  for (const DeviceProcess& process : device.processes) {
    Json one =
        Json::object({{"pid", process.pid}, {"user", process.user}, {"command", process.command}});
    if (process.bytes) one.set("bytes", *process.bytes);
    processes.push(std::move(one));
  }
  json.set("processes", std::move(processes));
  return json;
}

}  // namespace

const char* device_link_name(DeviceLink link) {
  return link == DeviceLink::nvlink ? "nvlink" : "pcie";
}

const char* peer_path_name(PeerPath path) {
  switch (path) {
    case PeerPath::nvlink:
      return "nvlink";
    case PeerPath::one_switch:
      return "pix";
    case PeerPath::switches:
      return "pxb";
    case PeerPath::host_bridge:
      return "phb";
    case PeerPath::sockets:
      return "sys";
    case PeerPath::unknown:
      break;
  }
  return "unknown";
}

Result<Machine> parse_machine(std::string_view json_text) {
  const Json json = TRY(parse_json(json_text));
  return machine_of(json);
}

Result<Machine> read_machine_file(const std::filesystem::path& path) {
  const std::string context = fmt::format("machine {}: ", path.string());
  const std::string text = TRY_CONTEXT(context, read_file(path, kFileBytesMax));
  Machine machine = TRY_CONTEXT(context, parse_machine(text));
  if (machine.name.empty()) machine.name = path.stem().string();
  return machine;
}

Json machine_to_json(const Machine& machine) {
  Json devices = Json::array();
  for (const Device& device : machine.devices) devices.push(device_to_json(device));
  Json learned = Json::object();
  for (const LearnedTerm& term : machine.learned) learned.set(term.term, term.bytes);
  Json host = Json::object({{"cpu_name", machine.cpu_name},
                            {"memory", machine.memory_total},
                            {"available", machine.memory_available},
                            {"cpus", std::max<std::int64_t>(1, std::ssize(machine.cpus))},
                            {"numa_nodes", std::max<std::int64_t>(1, std::ssize(machine.nodes))},
                            {"cgroup_limit", machine.cgroup_limit},
                            {"cgroup_used", machine.cgroup_used},
                            {"cpu_quota", machine.cpu_quota}});
  return Json::object({{"name", machine.name},
                       {"link", device_link_name(machine.link)},
                       {"peers", peers_to_json(machine.peers)},
                       {"host", std::move(host)},
                       {"devices", std::move(devices)},
                       {"learned", std::move(learned)}});
}

}  // namespace plimsoll
