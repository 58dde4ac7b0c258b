// FixedTokens: the answers of a simulated model: a token follows from the one before it and its
// position alone, so that every test can predict an answer and no batching can change it.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace plimsoll {

// What follows `token` at `position` (counted from 0, prompt included): token + position + 1,
// within the vocabulary.
std::int32_t fixed_token(std::int32_t token, std::int64_t position, std::int64_t vocab);

// Makes row `row` of zeroed logits [rows, vocab] f32 say that token with certainty, at any
// temperature; or takes that back.
void say_token(TensorView logits, std::int64_t row, std::int32_t token);
void unsay_token(TensorView logits, std::int64_t row, std::int32_t token);

}  // namespace plimsoll
