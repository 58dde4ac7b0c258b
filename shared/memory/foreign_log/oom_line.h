// OomLine: what PyTorch says when an allocation fails, in its wordings since 1.x.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "shared/base/units.h"

namespace plimsoll {

// "Process 123 has 15.88 GiB memory in use".
struct NamedProcess {
  std::int64_t pid = 0;  // as the host counts, not a container
  Bytes bytes = 0;
};

// What else is known of the process that ran out of memory.
struct OomProcess {
  std::optional<std::int64_t> pid = {};
  Bytes held_min = 0;                // weights and KV that it has said it holds
  std::optional<Bytes> others = {};  // that were held when it began
};

struct OomLine {
  std::optional<Bytes> tried = {};
  std::optional<Bytes> total = {};
  std::optional<Bytes> free = {};
  std::optional<Bytes> in_use = {};                // by this process, its context included
  std::optional<Bytes> by_pytorch = {};            // of that
  std::optional<Bytes> reserved_unallocated = {};  // what fragments
  std::vector<NamedProcess> named = {};            // at most 64

  // What nobody of this process holds: the named processes, else what is missing from the total.
  // Where no sentence says "this process", PyTorch did not find its own number among them (as in
  // containers), and one of them is itself: the one that holds what it must hold.
  Bytes held_by_others(const OomProcess& self = {}) const;
};

// "... out of memory. Tried to allocate 1.24 GiB. GPU 2 has a total capacity of 139.80 GiB of which
// 623.38 MiB is free. Process 2951793 has ... this process has 123.29 GiB memory in use. ...",
// "... Tried to allocate 96.00 MiB (GPU 0; 23.55 GiB total capacity; ...)", HIP, XPU and NPU alike.
// nullopt: the line is about something else.
std::optional<OomLine> parse_oom_line(std::string_view text);
// An allocation failed, with or without figures.
bool is_oom_line(std::string_view text);

}  // namespace plimsoll
