// MachineFile: a machine described in JSON (configs/machines), to plan for what is not here.
//
//   {"name": "8 x H200", "link": "nvlink",
//    "host": {"memory": "2TiB", "available": "1.9TiB", "cpus": 192, "numa_nodes": 2},
//    "devices": [{"count": 8, "name": "NVIDIA H200", "memory": "143771MiB", "free": "139.8GiB",
//                 "compute_capability": "9.0", "multiprocessors": 132, "bar1": "256GiB"}],
//    "learned": {"graphs": "1.3GiB"}}
//
// Sizes are text with a unit, or integers, which are bytes. See docs/plan.md for every key.
#pragma once

#include <filesystem>
#include <string_view>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/machine/machine.h"

namespace plimsoll {

constexpr std::int64_t kDevicesMax = 4096;

// Errors: Code::invalid, naming the key; Code::not_found where there is no such file.
// LearnedTerm::from of a description.
constexpr const char* kOfDescription = "the description";

Result<Machine> read_machine_file(const std::filesystem::path& path);
Result<Machine> parse_machine(std::string_view json_text);

// What reads back as the same machine; devices one by one, sizes in bytes.
Json machine_to_json(const Machine& machine);

}  // namespace plimsoll
