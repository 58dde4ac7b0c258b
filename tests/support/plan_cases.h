// PlanCases: machines and options for tests of the memory plan.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/machine/machine.h"
#include "shared/options/option_parse.h"

namespace plimsoll {

inline Machine test_machine(Bytes available, int cpus = 2, int nodes = 1) {
  Machine machine;
  machine.cpu_name = "test";
  machine.memory_total = 2 * available;
  machine.memory_available = available;
  for (int node = 0; node < nodes; ++node) machine.nodes.push_back({.id = node, .cpus = {}});
  for (int cpu = 0; cpu < cpus; ++cpu) {
    machine.cpus.push_back(cpu);
    machine.nodes[static_cast<std::size_t>(cpu * nodes / cpus)].cpus.push_back(cpu);
  }
  return machine;
}

// As if these flags had been given.
inline OptionSet test_options(std::vector<std::string> flags) {
  const Result<OptionSet> set =
      parse_options({.flags = std::move(flags), .environment = {}, .file = "/dev/null"});
  EXPECT_TRUE(set) << (set ? "" : set.error().message);
  return set ? *set : OptionSet{};
}

}  // namespace plimsoll
