// ProcessState: what a process that does not end is doing, as the kernel says it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace plimsoll {

struct ProcessState {
  char letter = '?';         // of ps: 'D' waits in the kernel and takes no signal; '?': not known
  std::string wait_channel;  // the kernel's function that it waits in; empty: not known
};
// Of its threads the one that is furthest from ending. `root` stands before /proc, for tests.
ProcessState process_state(std::int64_t pid, const std::filesystem::path& root = "/");

}  // namespace plimsoll
