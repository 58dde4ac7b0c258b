// ByteTokenizer: a stand-in for a tokenizer that is not here: a token is a byte.
//
// For models known by their config alone, on simulated devices: tokens 0 to 255 are the bytes of
// a prompt, all others show as "<300>", and none ends an answer.
#pragma once

#include <cstdint>

#include "shared/base/result.h"
#include "shared/tokenizer/tokenizer.h"

namespace plimsoll {

// Errors: a vocabulary of less than 256 tokens.
Result<Tokenizer> make_byte_tokenizer(std::int64_t vocab);

}  // namespace plimsoll
