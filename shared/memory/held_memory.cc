#include "shared/memory/held_memory.h"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include "shared/machine/neighbours.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/model_input.h"

namespace plimsoll {
namespace {

constexpr Bytes kWorthAWord = 32 * kMiB;
constexpr std::size_t kNamedMax = 8;
constexpr Bytes kMuch = 16;  // a process that holds this part of the machine's memory is named

std::vector<std::string> lines_of(const Machine& machine, std::span<const std::int64_t> own,
                                  Bytes bytes_min) {
  std::vector<std::int64_t> ours(own.begin(), own.end());
  ours.push_back(::getpid());
  const std::vector<Neighbour> found =
      machine.devices.empty() ? find_neighbours(ours, bytes_min) : device_neighbours(machine, ours);
  std::vector<std::string> lines;
  for (const Neighbour& neighbour : found) {
    if (lines.size() == kNamedMax) break;
    lines.push_back(neighbour_line(neighbour));
  }
  return lines;
}

}  // namespace

bool fits_alone(Machine machine, const OptionSet& options) {
  machine.memory_available = machine.memory_total;
  machine.cgroup_used = 0;
  for (Device& device : machine.devices) {
    device.memory_free = device.memory_total;
    device.free_before_weights.reset();
  }
  const Result<PlanModels> models = read_plan_models(options.values, machine);
  if (!models) return false;
  const Result<MemoryPlan> plan =
      plan_memory(machine, models->model, options, models->draft_or_null());
  return plan && !plan->refusal;
}

std::vector<std::string> large_holders(const Machine& machine, std::span<const std::int64_t> own) {
  return lines_of(machine, own, machine.memory_total / kMuch);
}

std::vector<std::string> all_holders(const Machine& machine, std::span<const std::int64_t> own) {
  std::vector<std::string> holders = large_holders(machine, own);
  return holders.empty() ? lines_of(machine, own, kWorthAWord) : holders;
}

std::string holders_text(std::span<const std::string> holders) {
  std::string text = fmt::format("\nOther processes hold the memory that it would fit in:{}",
                                 holders.empty() ? " none of them holds much alone" : "");
  for (const std::string& line : holders) text += "\n  " + line;
  return text;
}

}  // namespace plimsoll
