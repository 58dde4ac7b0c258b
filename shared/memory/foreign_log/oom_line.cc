#include "shared/memory/foreign_log/oom_line.h"

#include <algorithm>
#include <cstdlib>

#include "shared/memory/foreign_log/log_line.h"

namespace plimsoll {
namespace {

// What a process that is not ours must hold before it is worth a word.
constexpr Bytes kOthersMin = kGiB;

constexpr std::size_t kNamedMax = 64;

std::vector<NamedProcess> named_processes(std::string_view text) {
  std::vector<NamedProcess> named;
  for (std::size_t at = text.find("Process "); at != std::string_view::npos;
       at = text.find("Process ", at + 1)) {
    // "Process 2951793 has 15.88 GiB memory in use"
    const std::string_view sentence = text.substr(at, 80);
    const auto held = bytes_behind(sentence, " has ");
    if (!held || *held < 0 || *held > Bytes{1} << 50 || named.size() >= kNamedMax) continue;
    named.push_back({count_behind(sentence, "Process ").value_or(0), *held});
  }
  return named;
}

Bytes sum_of(const std::vector<NamedProcess>& named) {
  Bytes sum = 0;
  for (const NamedProcess& one : named) sum += one.bytes;
  return sum;
}

Bytes least_held(const OomLine& oom, const OomProcess& self) {
  if (!oom.by_pytorch) return self.held_min;
  return *oom.by_pytorch + oom.reserved_unallocated.value_or(0);
}

// Which of them ran out itself; nullptr: none of them can have.
const NamedProcess* self_among(const OomLine& oom, const OomProcess& self) {
  const std::vector<NamedProcess>& named = oom.named;
  const auto same = std::ranges::find_if(
      named, [&](const NamedProcess& one) { return self.pid && one.pid == *self.pid; });
  if (same != named.end()) return &*same;
  const Bytes least =
      oom.by_pytorch ? *oom.by_pytorch + oom.reserved_unallocated.value_or(0) : self.held_min;
  const Bytes all = sum_of(named);
  const NamedProcess* found = nullptr;
  for (const NamedProcess& one : named) {
    if (one.bytes < least) continue;
    const auto is_nearer = [&] {
      if (self.others) {
        return std::abs(all - one.bytes - *self.others) <
               std::abs(all - found->bytes - *self.others);
      }
      return least > 0 ? one.bytes < found->bytes : one.bytes > found->bytes;
    };
    if (found == nullptr || is_nearer()) found = &one;
  }
  return found;
}

}  // namespace

Bytes OomLine::held_by_others(const OomProcess& self) const {
  if (!named.empty()) {
    const NamedProcess* own = in_use ? nullptr : self_among(*this, self);
    return sum_of(named) - (own != nullptr ? own->bytes : 0);
  }
  if (!total || !free || !in_use) return 0;
  // Drivers that cannot tell print 0 bytes, or 17179869184.00 GiB.
  const Bytes held = std::max(*in_use, least_held(*this, self));
  const Bytes missing = *total - *free - held;
  return held > 0 && held <= *total && missing > kOthersMin ? missing : 0;
}

bool is_oom_line(std::string_view text) {
  // Of cuBLAS, of the driver, and of whoever passes their codes on.
  const bool is_code = has(text, "CUBLAS_STATUS_ALLOC_FAILED") ||
                       has(text, "cudaErrorMemoryAllocation") ||
                       (has(text, "CUresult error") && has(text, "result=2 "));
  if (is_code) return true;
  return has(text, "out of memory") &&
         (has(text, "Tried to allocate") || has(text, "CUDA") || has(text, "Cuda failure") ||
          has(text, "HIP") || has(text, "NPU") || has(text, "XPU") ||
          has(text, "OutOfMemoryError"));
}

std::optional<OomLine> parse_oom_line(std::string_view text) {
  if (!is_oom_line(text)) return {};
  OomLine oom;
  oom.tried = bytes_behind(text, "ried to allocate ");
  oom.total = bytes_behind(text, "total capacity of ");
  if (!oom.total) oom.total = bytes_behind(text, "total capacty of ");  // torch 2.0 and 2.1
  oom.free = bytes_behind(text, "of which ");
  oom.in_use = bytes_behind(text, "this process has ");
  oom.named = named_processes(text);
  oom.by_pytorch = bytes_before(text, " is allocated by PyTorch");
  oom.reserved_unallocated = bytes_before(text, " is reserved by PyTorch but unallocated");
  if (!oom.total) {  // torch 1.x
    oom.total = bytes_before(text, " total capacity");
    oom.free = bytes_before(text, " free");
    oom.in_use = bytes_before(text, " reserved in total");
  }
  return oom;
}

}  // namespace plimsoll
