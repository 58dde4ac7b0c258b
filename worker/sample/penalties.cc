#include "worker/sample/penalties.h"

#include <utility>

namespace plimsoll {

Penalties::Penalties(std::int64_t vocab) : counts_(static_cast<std::size_t>(vocab), 0) {}

void Penalties::apply(std::span<const std::int32_t> output, double frequency, double presence,
                      std::span<float> logits) {
  for (const std::int32_t token : output) ++counts_[static_cast<std::size_t>(token)];
  for (const std::int32_t token : output) {
    const auto index = static_cast<std::size_t>(token);
    const int count = std::exchange(counts_[index], 0);
    if (count == 0) continue;  // its penalty was applied at its first occurrence
    logits[index] = static_cast<float>(logits[index] - (frequency * count + presence));
  }
}

}  // namespace plimsoll
