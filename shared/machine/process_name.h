// ProcessName: who a process is, for people: its user and its command.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace plimsoll {

struct ProcessName {
  std::string user;     // name, else number; empty where the process is gone or hidden
  std::string command;  // "python3 -m sglang.launch_server --model ...", cut to a line
};

// `root` stands before /proc.
ProcessName process_name(std::int64_t pid, const std::filesystem::path& root = "/");

}  // namespace plimsoll
