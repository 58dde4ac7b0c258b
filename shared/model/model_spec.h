// ModelSpec: the shape of a model, from headers alone: a GGUF file's, or config.json and those of
// safetensors files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/model/gguf.h"
#include "shared/model/weight_group.h"
#include "shared/model/weight_index.h"

namespace plimsoll {

enum class RopePairing {
  interleaved,  // (2j, 2j+1): GGUF `llama`
  half_split,   // (j, j + head_dim/2): everyone else
};

// Multi-head latent attention (DeepSeek, Kimi): the cache holds one latent and one rotated key a
// token, for all heads.
struct LatentAttention {
  std::int64_t q_rank = 0;  // of the compressed query; 0: queries are projected directly
  std::int64_t kv_rank = 0;
  std::int64_t nope_dim = 0;  // of a head's key, not rotated
  std::int64_t rope_dim = 0;  // rotated; one for all heads
  std::int64_t value_dim = 0;
  // The checkpoint holds one kv_b matrix; decoding wants it split per head and transposed, beside.
  bool has_kv_b = false;
};

struct ExpertShape {
  std::int64_t layers = 0;      // that have experts; the others are dense
  std::int64_t count = 0;       // routed experts of a layer
  std::int64_t used = 0;        // by a token
  std::int64_t ffn = 0;         // rows of one expert's gate and up
  std::int64_t shared_ffn = 0;  // of all shared experts of a layer together; 0: there are none
};

struct VisionTower {
  std::string kind;  // "moonvit", "siglip"
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;
  std::int64_t heads = 0;
};

enum class WeightSource {
  headers,  // types and shapes as stored
  config,   // derived from config.json alone: `assumptions` says what was taken for granted
};

struct ModelSpec {
  std::string architecture;  // GGUF's name: "llama", "deepseek2"
  std::string name;          // for people
  std::string file_type;     // "Q4_1": the type that most weight bytes have
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;  // of dense layers
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // 1 with latent attention: the latent is there once
  std::int64_t head_dim = 0;  // of queries and keys; of values too, unless the attention is latent
  std::int64_t vocab = 0;
  std::int64_t context_length = 0;  // that the model was trained for
  double norm_eps = 1e-5;
  double rope_base = 10000;
  double rope_scale = 1;      // positions are divided by it (linear scaling)
  std::int64_t rope_dim = 0;  // leading dimensions of a head that are rotated
  RopePairing rope_pairing = RopePairing::interleaved;
  // Base of layers with a window, whose positions are not scaled. 0: they rotate like the others.
  double window_rope_base = 0;
  bool tied_head = false;       // the head is token_embd.weight
  bool has_rope_freqs = false;  // rope_freqs.weight divides each frequency (Llama 3)

  std::optional<LatentAttention> latent;
  ExpertShape experts;
  // Layers that are not in `full_layers` attend to this many tokens, their own included.
  // 0: every layer attends to all, and full_layers is empty.
  std::int64_t window = 0;
  std::vector<std::int64_t> full_layers;
  bool has_qkv_bias = false;
  bool has_qk_norms = false;    // of each head of queries and keys, before they are rotated
  bool has_post_norms = false;  // after attention and feed-forward, before they are added
  std::optional<VisionTower> vision;
  std::int64_t mtp_layers = 0;
  std::string quantisation;  // for people: "compressed-tensors INT4, groups of 32"; "" is none

  WeightSource weight_source = WeightSource::headers;
  std::vector<std::string> assumptions;  // a sentence each
  std::vector<WeightGroup> groups;       // all weights
  WeightIndex weights;                   // each by its name, of GGUF files
  // Of a GGUF file that can be planned for, and why no worker of ours loads it; "": one does.
  std::string not_loaded;

  // KV bytes of one token on a rank with that many KV heads, all layers, f16.
  Bytes kv_bytes_per_token(std::int64_t rank_kv_heads) const {
    if (latent) return layers * (latent->kv_rank + latent->rope_dim) * 2;
    return layers * 2 * rank_kv_heads * head_dim * 2;
  }
  Bytes weight_bytes() const;  // of all groups, as stored
  bool has_window(std::int64_t layer) const;
  bool can_be_loaded() const { return !weights.all().empty() && not_loaded.empty(); }
};

// A model that the worker's graph can run. Errors: a part of a model, an architecture that we
// cannot run (names those that we can), missing or odd metadata, a weight that is missing, has
// another shape than the metadata say, or a type that we cannot run.
Result<ModelSpec> read_model_spec(const GgufFile& file);

}  // namespace plimsoll
