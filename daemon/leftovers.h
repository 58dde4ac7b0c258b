// Leftovers: processes that outlive the one that started them. Each child carries the instance and
// its own name in its environment, and so does whatever it starts: they are told by that, never by
// the name of a program, and other instances lose nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace plimsoll {

// No option of ours, although it begins like their variables.
constexpr std::string_view kInstanceVariable = "PLIMSOLLD_INSTANCE";
// "PLIMSOLLD_INSTANCE=0123456789abcdef/worker-0-1-7"
std::string instance_variable(const std::string& instance, const std::string& child);

// Of a whole instance, or of some of its children by their names; the dead are none. `root` stands
// before /proc, for tests.
std::vector<std::int64_t> processes_of(const std::string& instance,
                                       const std::vector<std::string>& children = {},
                                       const std::filesystem::path& root = "/");

// Ends them. What is returned are lines about each that was still there.
std::vector<std::string> end_processes_of(const std::string& instance,
                                          const std::vector<std::string>& children = {});

// Lives of this state folder: which instances there were since the machine was started.
struct Lives {
  // Ends what they have left, and notes this one. REQUIRES: the folder's lock.
  static std::vector<std::string> begin(const std::filesystem::path& state,
                                        const std::string& instance,
                                        const std::filesystem::path& root = "/");
};

}  // namespace plimsoll
