// TinyVocab: the tokenizer's metadata of a tiny model: 256 bytes, special tokens, a few merges.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "shared/model/gguf.h"

namespace plimsoll {

// In the order in which they are written. Ids: 0 <|endoftext|> (unknown), 1 <|im_start|> (bos),
// 2 <|im_end|> (eos), 3 + b byte b, then the merges.
std::vector<std::pair<std::string, GgufValue>> tiny_vocab();

}  // namespace plimsoll
