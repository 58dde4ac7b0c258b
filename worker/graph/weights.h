// Weights: the packed weights of one rank, by their place in the graph. Owns nothing: all of it
// lies in an arena.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"

namespace plimsoll {

struct LayerWeights {
  const float* attn_norm = nullptr;  // [hidden]
  PackedMatrix qkv;                  // [(heads + 2 kv_heads) * head_dim, hidden]
  const float* qkv_bias = nullptr;   // of its rows, or none
  const float* q_norm = nullptr;     // [head_dim], or none
  const float* k_norm = nullptr;
  PackedMatrix attn_output;                    // [hidden, heads * head_dim]
  const float* post_attention_norm = nullptr;  // [hidden], or none
  const float* ffn_norm = nullptr;             // [hidden]
  PackedMatrix gate_up;                        // two parts of [ffn, hidden]
  PackedMatrix ffn_down;                       // [hidden, ffn]
  const float* post_ffn_norm = nullptr;        // [hidden], or none
};

struct ModelWeights {
  explicit ModelWeights(const ModelSpec& spec);

  bool tied_head = false;
  PackedMatrix embedding;  // [vocab, hidden]; empty where the head is tied
  PackedMatrix head;       // tied: all of [vocab, hidden]; else the rank's rows alone
  const float* output_norm = nullptr;
  const float* rope_freqs = nullptr;  // [rope_dim / 2], or none
  std::vector<LayerWeights> layers;

  const PackedMatrix& embedding_table() const { return tied_head ? head : embedding; }

  // Where a matrix or vector of rank_weights() goes, by its name; nullptr where the graph has no
  // such place.
  PackedMatrix* matrix(std::string_view name);
  const float** vector(std::string_view name);
};

}  // namespace plimsoll
