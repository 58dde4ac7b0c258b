// OomLine: what PyTorch says when an allocation fails, in its wordings since 1.x.
#pragma once

#include <optional>
#include <string_view>

#include "shared/base/units.h"

namespace plimsoll {

struct OomLine {
  std::optional<Bytes> tried = {};
  std::optional<Bytes> total = {};
  std::optional<Bytes> free = {};
  std::optional<Bytes> in_use = {};                // by this process, its context included
  std::optional<Bytes> reserved_unallocated = {};  // what fragments
  Bytes others = 0;                                // "Process 123 has 15.88 GiB memory in use"

  // What nobody of this process holds: named processes, else what is missing from the total.
  Bytes held_by_others() const;
};

// "... out of memory. Tried to allocate 1.24 GiB. GPU 2 has a total capacity of 139.80 GiB of which
// 623.38 MiB is free. Process 2951793 has ... this process has 123.29 GiB memory in use. ...",
// "... Tried to allocate 96.00 MiB (GPU 0; 23.55 GiB total capacity; ...)", HIP, XPU and NPU alike.
// nullopt: the line is about something else.
std::optional<OomLine> parse_oom_line(std::string_view text);
// An allocation failed, with or without figures.
bool is_oom_line(std::string_view text);

}  // namespace plimsoll
