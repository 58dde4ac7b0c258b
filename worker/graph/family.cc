#include "worker/graph/family.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace plimsoll {
namespace {

float inverse_root(std::int64_t head_dim) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
}

constexpr std::array kFamilies = {
    DecoderFamily{.architecture = "llama", .attention_scale = inverse_root},
};

}  // namespace

const DecoderFamily* find_decoder_family(std::string_view architecture) {
  const auto* found = std::ranges::find(kFamilies, architecture, &DecoderFamily::architecture);
  return found == kFamilies.end() ? nullptr : found;
}

}  // namespace plimsoll
