// ModelSpec: the shape of a model, from a file's header alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/model/gguf.h"
#include "shared/model/weight_index.h"

namespace plimsoll {

enum class RopePairing {
  interleaved,  // (2j, 2j+1): GGUF `llama`
  half_split,   // (j, j + head_dim/2): everyone else
};

struct ModelSpec {
  std::string architecture;  // GGUF's name: "llama"
  std::string name;          // for people
  std::string file_type;     // "Q4_1": the type that most weight bytes have
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab = 0;
  std::int64_t context_length = 0;  // that the model was trained for
  double norm_eps = 1e-5;
  double rope_base = 10000;
  double rope_scale = 1;      // positions are divided by it (linear scaling)
  std::int64_t rope_dim = 0;  // leading dimensions of a head that are rotated
  RopePairing rope_pairing = RopePairing::interleaved;
  bool tied_head = false;       // the head is token_embd.weight
  bool has_rope_freqs = false;  // rope_freqs.weight divides each frequency (Llama 3)
  WeightIndex weights;

  // KV bytes of one token on a rank with that many KV heads, all layers, f16.
  Bytes kv_bytes_per_token(std::int64_t rank_kv_heads) const {
    return layers * 2 * rank_kv_heads * head_dim * 2;
  }
};

// Errors: an architecture that we cannot run (names those that we can), missing or odd metadata, a
// weight that is missing, has another shape than the metadata say, or a type that we cannot run.
Result<ModelSpec> read_model_spec(const GgufFile& file);

}  // namespace plimsoll
