#include "shared/generation/fingerprint.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/generation/library_version.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSmallFileBytesMax = 64 * 1024;
constexpr std::size_t kHeadBytes = 8 * 1024 * 1024;
constexpr std::size_t kSampleBytes = 4096;
constexpr std::size_t kSamples = 64;
constexpr std::size_t kFilesMax = 1024;  // of a model's folder
constexpr std::size_t kValueBytesMax = 1024;

constexpr std::array<std::string_view, 10> kPrefixes = {
    "NCCL_", "CUDA_", "OMP_",      "PLIMSOLL_",      "UCX_",
    "GLOO_", "KMP_",  "OPENBLAS_", "NVIDIA_VISIBLE", "GOMP_"};
constexpr std::array<std::string_view, 4> kNames = {"LD_PRELOAD", "LD_LIBRARY_PATH",
                                                    "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"};
constexpr std::array<std::string_view, 5> kSecrets = {"KEY", "TOKEN", "SECRET", "PASSWORD",
                                                      "CREDENTIAL"};

// FNV-1a, 64 bits: not against forgers, only to see that something is another.
class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      value_ ^= static_cast<std::uint64_t>(byte);
      value_ *= 0x100000001b3ULL;
    }
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  void add(std::uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }
  std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

Result<Bytes> add_file(Hash& hash, const fs::path& path) {
  const MappedFile file = TRY(MappedFile::open(path));
  const std::span<const std::byte> all = file.bytes();
  hash.add(static_cast<std::uint64_t>(all.size()));
  const std::size_t head = std::min(all.size(), kHeadBytes);
  hash.add(all.first(head));
  const std::span<const std::byte> rest = all.subspan(head);
  if (rest.size() <= kSamples * kSampleBytes) {
    hash.add(rest);
  } else {
    const std::size_t last = rest.size() - kSampleBytes;
    const std::size_t step = last / (kSamples - 1);
    for (std::size_t i = 0; i + 1 < kSamples; ++i) hash.add(rest.subspan(i * step, kSampleBytes));
    hash.add(rest.subspan(last));
  }
  return static_cast<Bytes>(all.size());
}

std::string small_file(const fs::path& path) {
  const Result<std::string> content = read_file(path, kSmallFileBytesMax);
  return content ? std::string(trim(*content)) : "";
}

// "6.1.0-18-amd64 #1 SMP ..." for the machine itself; from /proc in tests.
std::string kernel_release(const fs::path& root) {
  const std::string said = small_file(root / "proc/sys/kernel/osrelease");
  if (!said.empty()) return said;
  utsname names{};
  return ::uname(&names) == 0 ? names.release : "";
}

std::string cpus_text(const Machine& machine) {
  std::string text = fmt::format("{} x {}", machine.cpus.size(), machine.cpu_name);
  if (machine.cpu_quota > 0) text += fmt::format(", quota {:.2f}", machine.cpu_quota);
  return text;
}

std::string numa_text(const Machine& machine) {
  std::string text;
  for (const NumaNode& node : machine.nodes) {
    text += fmt::format("{}node {}: {} CPUs", text.empty() ? "" : ", ", node.id, node.cpus.size());
  }
  return text;
}

// Vendor 10de, display or 3D controllers: where each hangs, without asking its driver.
void add_pci_gpus(const fs::path& root, std::vector<Setting>& out) {
  std::vector<Setting> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root / "sys/bus/pci/devices", ignored)) {
    if (small_file(entry.path() / "vendor") != "0x10de") continue;
    if (!small_file(entry.path() / "class").starts_with("0x03")) continue;
    const std::string path = fs::weakly_canonical(entry.path(), ignored).string();
    constexpr std::string_view kDevices = "/devices/";
    const std::size_t at = path.find(kDevices);
    found.push_back(
        {fmt::format("pcie {}", entry.path().filename().string()),
         fmt::format("device {}, NUMA node {}, {}", small_file(entry.path() / "device"),
                     small_file(entry.path() / "numa_node"),
                     at == std::string::npos ? path : path.substr(at + kDevices.size())),
         ""});
  }
  std::ranges::sort(found, {}, &Setting::name);
  out.insert(out.end(), found.begin(), found.end());
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10 ..."
std::string driver_version(const fs::path& root) {
  const std::string text = small_file(root / "proc/driver/nvidia/version");
  const std::string_view line = split(text, '\n').front();
  constexpr std::string_view kMark = "Module";
  const std::size_t at = line.find(kMark);
  if (at == std::string_view::npos) return std::string(line);
  const std::string_view tail = trim(line.substr(at + kMark.size()));
  return std::string(tail.substr(0, tail.find(' ')));
}

}  // namespace

std::vector<Setting> kept_variables(std::span<const std::string> variables) {
  std::vector<Setting> kept;
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = variable.substr(0, equals);
    const bool matters =
        std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); }) ||
        std::ranges::find(kNames, name) != kNames.end();
    if (!matters) continue;
    const bool is_secret = std::ranges::any_of(
        kSecrets, [&](auto part) { return name.find(part) != std::string::npos; });
    std::string value = is_secret ? "(set)" : variable.substr(equals + 1);
    if (value.size() > kValueBytesMax) {
      value.resize(kValueBytesMax);
      value += "...";
    }
    kept.push_back({name, std::move(value), "environment"});
  }
  std::ranges::sort(kept, {}, &Setting::name);
  return kept;
}

std::vector<std::string> own_variables() {
  std::vector<std::string> all;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    all.emplace_back(*variable);
  }
  return all;
}

Result<std::string> model_fingerprint(const fs::path& model) {
  Hash hash;
  Bytes total = 0;
  std::error_code failed;
  if (!fs::is_directory(model, failed)) {
    total = TRY(add_file(hash, model));
    return fmt::format("{} ({})", hash.text(), format_bytes(total));
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(model, failed)) {
    const std::string kind = entry.path().extension().string();
    if (entry.is_regular_file(failed) && (kind == ".json" || kind == ".safetensors")) {
      files.push_back(entry.path());
    }
  }
  if (failed) return unavailable(fmt::format("read {}: {}", model.string(), failed.message()));
  if (files.size() > kFilesMax) {
    return invalid(fmt::format("{} has {} files; at most {} are read", model.string(), files.size(),
                               kFilesMax));
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    hash.add(file.filename().string());
    total += TRY(add_file(hash, file));
  }
  return fmt::format("{} ({} in {} files)", hash.text(), format_bytes(total), files.size());
}

std::vector<Setting> read_fingerprint(const FingerprintSources& sources) {
  std::vector<Setting> out;
  const auto add = [&out](std::string name, std::string value) {
    if (!value.empty()) out.push_back({std::move(name), std::move(value), ""});
  };
  const Machine& machine = sources.machine;
  add("build", sources.build);
  add("kernel", kernel_release(sources.root));
  add("cpus", cpus_text(machine));
  add("numa", numa_text(machine));
  add("memory", format_bytes(machine.memory_total));
  if (machine.cgroup_limit > 0) add("memory limit (cgroup)", format_bytes(machine.cgroup_limit));
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const Device& device = machine.devices[i];
    add(fmt::format("devices {}", i),
        fmt::format("{}, {}, NUMA node {}{}", device.name, format_bytes(device.memory_total),
                    device.numa_node,
                    device.uuid.empty() || device.is_simulated ? "" : ", " + device.uuid));
  }
  add("driver", driver_version(sources.root));
  add("cuda", library_version("libcudart.so", sources.variables, sources.root));
  add("nccl", library_version("libnccl.so", sources.variables, sources.root));
  add_pci_gpus(sources.root, out);
  if (!sources.model.empty()) {
    const Result<std::string> model = model_fingerprint(sources.model);
    if (model) add("model", *model);
  }
  const std::vector<Setting> variables = kept_variables(sources.variables);
  out.insert(out.end(), variables.begin(), variables.end());
  return out;
}

Json settings_to_json(const std::vector<Setting>& settings) {
  Json json = Json::array();
  for (const Setting& setting : settings) {
    Json item = Json::object({{"name", setting.name}, {"value", setting.value}});
    if (!setting.source.empty()) item.set("source", setting.source);
    if (!setting.place.empty()) item.set("place", setting.place);
    json.push(std::move(item));
  }
  return json;
}

std::vector<Setting> settings_from_json(const Json& json) {
  std::vector<Setting> settings;
  if (!json.is_array()) return settings;
  const auto text = [](const Json& item, std::string_view key) {
    const Json* found = item.find(key);
    return found != nullptr && found->is_string() ? found->as_string() : std::string();
  };
  for (const Json& item : json.as_array()) {
    if (text(item, "name").empty()) continue;
    settings.push_back(
        {text(item, "name"), text(item, "value"), text(item, "source"), text(item, "place")});
  }
  return settings;
}

}  // namespace plimsoll
