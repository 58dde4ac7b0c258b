// DecoderFamily: what differs between model families that the one decoder runs; a row each.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/backend.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

struct DecoderFamily {
  std::string_view architecture;  // GGUF's name
  // Scores are multiplied by this before the softmax.
  float (*attention_scale)(const ModelSpec& spec);
  Epilogue gate = Epilogue::silu_mul;
  // Rows of the embedding are multiplied by this; the head, tied or not, is not.
  float (*embedding_scale)(const ModelSpec& spec);
};

// nullptr: none that we can run.
const DecoderFamily* find_decoder_family(std::string_view architecture);

}  // namespace plimsoll
