#include "shared/memory/foreign_log/oom_line.h"

#include <algorithm>
#include <vector>

#include "shared/memory/foreign_log/log_line.h"

namespace plimsoll {
namespace {

// What a process that is not ours must hold before it is worth a word.
constexpr Bytes kOthersMin = kGiB;

// The figure that ends just before `key`: "4.69 MiB free".
std::optional<Bytes> bytes_before(std::string_view text, std::string_view key) {
  const std::size_t found = text.find(key);
  if (found == std::string_view::npos) return {};
  const std::string_view head = text.substr(0, found);
  const std::size_t begin = head.find_last_of(";(,");
  return bytes_behind(head.substr(begin == std::string_view::npos ? 0 : begin + 1), "");
}

constexpr std::size_t kProcessesMax = 64;

// "Process 2951793 has 15.88 GiB memory in use", each.
std::vector<Bytes> named_processes(std::string_view text) {
  std::vector<Bytes> held;
  for (std::size_t at = text.find("Process ");
       at != std::string_view::npos && held.size() < kProcessesMax;
       at = text.find("Process ", at + 1)) {
    const auto bytes = bytes_behind(text.substr(at, 80), " has ");
    if (bytes && *bytes >= 0 && *bytes < Bytes{1} << 50) held.push_back(*bytes);
  }
  return held;
}

// Where PyTorch does not find its own number in the driver's list (in a container), it calls itself
// "Process N" too: the least of those that hold what it has allocated; without that figure, one
// that is alone.
void take_own(std::string_view text, std::vector<Bytes>& held, OomLine& oom) {
  if (oom.in_use || held.empty()) return;
  const auto allocated = bytes_behind(text, "Of the allocated memory ");
  auto own = held.end();
  for (auto one = held.begin(); one != held.end(); ++one) {
    const bool may_be = allocated ? *one >= *allocated : held.size() == 1;
    if (may_be && (own == held.end() || *one < *own)) own = one;
  }
  if (own == held.end()) return;
  oom.in_use = *own;
  held.erase(own);
}

}  // namespace

Bytes OomLine::held_by_others() const {
  if (others > 0) return others;
  if (!total || !free || !in_use) return 0;
  // Drivers that cannot tell print 17179869184.00 GiB.
  const Bytes missing = *total - *free - *in_use;
  return *in_use <= *total && missing > kOthersMin ? missing : 0;
}

bool is_oom_line(std::string_view text) {
  return has(text, "out of memory") &&
         (has(text, "Tried to allocate") || has(text, "CUDA") || has(text, "HIP") ||
          has(text, "NPU") || has(text, "XPU") || has(text, "OutOfMemoryError"));
}

std::optional<OomLine> parse_oom_line(std::string_view text) {
  if (!is_oom_line(text)) return {};
  OomLine oom;
  oom.tried = bytes_behind(text, "ried to allocate ");
  oom.total = bytes_behind(text, "total capacity of ");
  if (!oom.total) oom.total = bytes_behind(text, "total capacty of ");  // torch 2.0 and 2.1
  oom.free = bytes_behind(text, "of which ");
  oom.in_use = bytes_behind(text, "this process has ");
  std::vector<Bytes> held = named_processes(text);
  take_own(text, held, oom);
  for (const Bytes bytes : held) oom.others += bytes;
  if (const std::size_t by = text.find("is allocated by PyTorch, and "); by != text.npos) {
    oom.reserved_unallocated = bytes_behind(text.substr(by), "and ");
  }
  if (!oom.total) {  // torch 1.x
    oom.total = bytes_before(text, " total capacity");
    oom.free = bytes_before(text, " free");
    oom.in_use = bytes_before(text, " reserved in total");
  }
  return oom;
}

}  // namespace plimsoll
