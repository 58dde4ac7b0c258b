#include "kernels/simulated/fixed_tokens.h"

#include "shared/base/check.h"

namespace plimsoll {
namespace {

// Above all others, which stay 0: their probability is 0 in f32 at every temperature.
constexpr float kCertain = 1e6F;

}  // namespace

std::int32_t fixed_token(std::int32_t token, std::int64_t position, std::int64_t vocab) {
  CHECK(vocab > 0);
  return static_cast<std::int32_t>((token + position + 1) % vocab);
}

void say_token(TensorView logits, std::int64_t row, std::int32_t token) {
  logits.row(row)[token] = kCertain;
}

void unsay_token(TensorView logits, std::int64_t row, std::int32_t token) {
  logits.row(row)[token] = 0;
}

}  // namespace plimsoll
