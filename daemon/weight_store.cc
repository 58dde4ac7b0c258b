#include "daemon/weight_store.h"

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/base/sealed_block.h"
#include "shared/memory/weight_label.h"
#include "shared/options/device_choice.h"

namespace plimsoll {
namespace {

std::string stored_name(std::int64_t rank) { return fmt::format("{}{}", kStoredWeights, rank); }

// Weights of the CUDA backend are packed otherwise, and belong to a device.
bool is_on_cpu(const LaunchPlan& plan) {
  const Result<DeviceChoice> choice = parse_device_choice(plan.options.values.devices);
  return plan.memory.devices == "cpu" && choice && choice->kind != DeviceKind::simulated &&
         choice->kind != DeviceKind::cuda_host;
}

}  // namespace

WeightStore::WeightStore(std::vector<InheritedDescriptor> inherited, ServiceNotify& service)
    : service_(service) {
  for (InheritedDescriptor& descriptor : inherited) {
    const std::string_view number =
        std::string_view(descriptor.name).substr(std::string_view(kStoredWeights).size());
    std::int64_t rank = -1;
    std::from_chars(number.data(), number.data() + number.size(), rank);
    const std::optional<std::string> label = SealedBlock::label_of(descriptor.fd.get());
    if (rank >= 0 && label) blocks_[rank] = {*label, std::move(descriptor.fd)};
  }
}

int WeightStore::block_of(const LaunchPlan& plan, std::int64_t replica, std::int64_t rank) {
  if (!is_on_cpu(plan)) return -1;
  const RankPlan& wanted = plan.memory.ranks.at(static_cast<std::size_t>(replica * plan.tp + rank));
  const Result<std::string> label = weight_label(plan.options.values.model, wanted);
  if (!label) return -1;  // the rank says why there is no such file
  const auto held = blocks_.find(rank);
  if (held != blocks_.end() && held->second.label == *label) return held->second.fd.get();

  drop(rank);
  while (!blocks_.empty() && blocks_.rbegin()->first >= plan.tp) drop(blocks_.rbegin()->first);
  Result<UniqueFd> made =
      SealedBlock::create(fmt::format("plimsoll-weights-{}", rank), wanted.packed_weights());
  if (!made) return -1;
  const Block& block = blocks_[rank] = {*label, std::move(*made)};
  (void)service_.store(stored_name(rank).c_str(), block.fd.get());
  return block.fd.get();
}

void WeightStore::note_shared(LaunchPlan& plan) const {
  plan.shares_weights.assign(static_cast<std::size_t>(plan.tp), false);
  if (!is_on_cpu(plan)) return;
  for (const auto& [rank, block] : blocks_) {
    // Sealed says that ranks do map it: where the kernel cannot, each has its own.
    const auto index = static_cast<std::size_t>(rank);
    if (rank >= plan.tp || index >= plan.memory.ranks.size()) continue;
    if (!SealedBlock::label_of(block.fd.get())) continue;
    const Result<std::string> label =
        weight_label(plan.options.values.model, plan.memory.ranks[index]);
    plan.shares_weights[index] = label && *label == block.label;
  }
}

void WeightStore::drop(std::int64_t rank) {
  if (blocks_.erase(rank) > 0) service_.forget(stored_name(rank).c_str());
}

void WeightStore::drop() {
  while (!blocks_.empty()) drop(blocks_.begin()->first);
}

}  // namespace plimsoll
