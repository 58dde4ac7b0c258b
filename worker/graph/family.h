// DecoderFamily: what differs between model families that the one decoder runs; a row each.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

struct DecoderFamily {
  std::string_view architecture;  // GGUF's name
  // Scores are multiplied by this before the softmax.
  float (*attention_scale)(std::int64_t head_dim);
};

// nullptr: none that we can run.
const DecoderFamily* find_decoder_family(std::string_view architecture);

}  // namespace plimsoll
