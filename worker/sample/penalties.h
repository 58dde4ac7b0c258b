// Penalties: lowers the logits of tokens that a request has generated already.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace plimsoll {

// l -= frequency * count + presence, for each token with count > 0 in the output so far.
class Penalties {
 public:
  explicit Penalties(std::int64_t vocab);

  // REQUIRES: logits has the vocabulary's length; output's tokens are of it.
  void apply(std::span<const std::int32_t> output, double frequency, double presence,
             std::span<float> logits);

 private:
  std::vector<std::int32_t> counts_;  // all zero between calls
};

}  // namespace plimsoll
