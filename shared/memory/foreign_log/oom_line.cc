#include "shared/memory/foreign_log/oom_line.h"

#include <algorithm>

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

Bytes named_processes(std::string_view text) {
  Bytes sum = 0;
  for (std::size_t at = text.find("Process "); at != std::string_view::npos;
       at = text.find("Process ", at + 1)) {
    // "Process 2951793 has 15.88 GiB memory in use"
    const std::string_view sentence = text.substr(at, 80);
    if (const auto held = bytes_behind(sentence, " has ")) sum += std::max<Bytes>(*held, 0);
    if (sum > Bytes{1} << 50) break;
  }
  return sum;
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
  oom.others = named_processes(text);
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
