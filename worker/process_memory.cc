#include "worker/process_memory.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/base/file.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::size_t kRollupBytesMax = 64 * 1024;
constexpr std::size_t kMapsBytesMax = 16 * 1024 * 1024;
constexpr std::size_t kPagesAtOnce = 64 * 1024;

// "Pss:   12 kB" of smaps and smaps_rollup.
Bytes bytes_of(std::string_view line) {
  const std::string_view value = trim(line.substr(line.find(':') + 1));
  Bytes kib = 0;
  std::from_chars(value.data(), value.data() + value.size(), kib);
  return kib * kKiB;
}

// Of a line of smaps that begins a map; its figures follow.
std::optional<std::uintptr_t> map_start(std::string_view line) {
  std::uintptr_t start = 0;
  const char* const end = line.data() + line.size();
  const auto [after, error] = std::from_chars(line.data(), end, start, 16);
  if (error != std::errc() || after == end || *after != '-') return std::nullopt;
  return start;
}

}  // namespace

Result<ProcessMemory> read_process_memory(const std::filesystem::path& root) {
  const std::string rollup = TRY(read_file(root / "proc/self/smaps_rollup", kRollupBytesMax));
  ProcessMemory memory;
  bool has_total = false;
  for (const std::string_view line : split(rollup, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, colon);
    if (name == "Pss") memory.total = bytes_of(line);
    if (name == "Pss_Anon") memory.anonymous = bytes_of(line);
    if (name == "Pss_File") memory.file = bytes_of(line);
    if (name == "Pss_Shmem") memory.shared = bytes_of(line);
    has_total = has_total || name == "Pss";
  }
  if (has_total) return memory;
  return unavailable("read /proc/self/smaps_rollup: there is no Pss");
}

Result<std::string> read_maps(const std::filesystem::path& root) {
  return read_file(root / "proc/self/smaps", kMapsBytesMax);
}

Bytes proportional_bytes(std::string_view maps, std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  bool is_inside = false;
  Bytes bytes = 0;
  for (const std::string_view line : split(maps, '\n')) {
    if (const std::optional<std::uintptr_t> start = map_start(line)) {
      is_inside = *start >= begin && *start < begin + memory.size();
    } else if (is_inside && line.starts_with("Pss:")) {
      bytes += bytes_of(line);
    }
  }
  return bytes;
}

Result<ProgramMemory> read_program_memory(std::string_view maps,
                                          const std::filesystem::path& root) {
  std::error_code failed;
  const std::string program =
      std::filesystem::read_symlink(root / "proc/self/exe", failed).string();
  if (failed) return unavailable("read /proc/self/exe: " + failed.message());
  bool is_program = false;
  ProgramMemory memory;
  for (const std::string_view line : split(maps, '\n')) {
    if (map_start(line)) {
      is_program = line.ends_with(" " + program);
    } else if (is_program && line.starts_with("Pss:")) {
      memory.proportional += bytes_of(line);
    } else if (is_program && line.starts_with("Rss:")) {
      memory.file += bytes_of(line);
    } else if (is_program && line.starts_with("Anonymous:")) {
      memory.own += bytes_of(line);
    }
  }
  memory.file -= memory.own;
  return memory;
}

Result<Bytes> touched_bytes(std::span<const std::byte> memory) {
  if (memory.empty()) return Bytes{0};
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(memory.data()) + memory.size();
  std::vector<unsigned char> is_there(kPagesAtOnce);
  Bytes touched = 0;
  for (std::uintptr_t at = begin; at < end; at += kPagesAtOnce * page) {
    const std::size_t length = std::min<std::size_t>(kPagesAtOnce * page, end - at);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address within the map, at a page's start
    if (::mincore(reinterpret_cast<void*>(at), length, is_there.data()) != 0) {
      return unavailable(fmt::format("ask which pages are there: {}", std::strerror(errno)));
    }
    const std::size_t pages = (length + page - 1) / page;
    for (std::size_t i = 0; i < pages; ++i) {
      touched += static_cast<Bytes>(is_there[i] & 1U) * static_cast<Bytes>(page);
    }
  }
  return touched;
}

}  // namespace plimsoll
