// ProcessMemory: what the kernel says that this process holds, and what of a map it has touched.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/result.h"
#include "shared/base/units.h"

namespace plimsoll {

// Proportional: a page that n processes share counts as an n-th in each.
struct ProcessMemory {
  Bytes total = 0;
  Bytes anonymous = 0;
  Bytes file = 0;    // program, libraries, mapped files
  Bytes shared = 0;  // shared memory
};

// /proc/self/smaps_rollup; `root` stands before /proc, for tests. Errors: not_found, unavailable.
Result<ProcessMemory> read_process_memory(const std::filesystem::path& root = "/");

// /proc/self/smaps, for what follows. The kernel visits every page that is there for it.
Result<std::string> read_maps(const std::filesystem::path& root = "/");

// What counts for this process of a map that others may have, too.
Bytes proportional_bytes(std::string_view maps, std::span<const std::byte> memory);

// The program's own maps: what counts of them for this process, and what they are.
struct ProgramMemory {
  Bytes proportional = 0;
  Bytes own = 0;   // pages that this process has changed
  Bytes file = 0;  // pages that every process of this program has in common
};
// Errors: not_found, unavailable.
Result<ProgramMemory> read_program_memory(std::string_view maps,
                                          const std::filesystem::path& root = "/");

// Of an anonymous map. Errors: unavailable, where the kernel does not say.
Result<Bytes> touched_bytes(std::span<const std::byte> memory);

}  // namespace plimsoll
