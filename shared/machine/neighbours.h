// Neighbours: other processes that hold memory of this machine, and what an earlier life has left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "shared/base/units.h"
#include "shared/machine/machine.h"

namespace plimsoll {

struct Neighbour {
  std::int64_t pid = 0;
  std::string user;
  std::string command;
  Bytes bytes = 0;           // anonymous and shared memory; of a device, what the driver says
  bool is_leftover = false;  // a worker or router whose plimsolld is gone
  std::string where;         // of a device: "NVIDIA H200 0"; empty: the machine's memory
};

constexpr std::size_t kNeighboursMax = 8;  // that are named

// All but `own` that hold at least `bytes_min`, and all leftovers; most memory first, at most
// kNeighboursMax. What cannot be read is nobody's. `root` stands before /proc, for tests.
std::vector<Neighbour> find_neighbours(std::span<const std::int64_t> own, Bytes bytes_min,
                                       const std::filesystem::path& root = "/");

// Likewise of the devices, where the driver says who they are.
std::vector<Neighbour> device_neighbours(const Machine& machine, std::span<const std::int64_t> own);

// "PID 4711 (root: python3 -m sglang.launch_server) holds 12.30 GiB"
std::string neighbour_line(const Neighbour& neighbour);

}  // namespace plimsoll
