// WeightTable: every kind of weight of the families that we know: its names, its shape in terms of
// the model's sizes, and how ranks divide it.
//
// One table serves all families; a family says which features it has (family.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "shared/model/model_spec.h"

namespace plimsoll {

enum class Dim : std::uint8_t {
  none,  // a vector has no second one
  one,
  hidden,
  vocab,
  query,      // heads x head_dim
  key,        // KV heads x head_dim
  attention,  // heads x the values' width: what the output projection reads
  head,       // head_dim
  heads,
  q_rank,
  kv_rank,
  kv_a,  // kv_rank + rope_dim
  kv_b,  // heads x (nope_dim + value_dim)
  ffn,
  expert_ffn,
  shared_ffn,
  experts,
  two_hidden,
};

enum class Where : std::uint8_t {
  model,         // once
  layer,         // once in every layer
  dense_layer,   // once in every layer without experts
  expert_layer,  // once in every layer with experts
  expert,        // once for every routed expert; GGUF stacks a layer's in one tensor
  mtp_layer,     // once in every layer that drafts, beside what an ordinary layer has
};

// What some families have and others have not; a row may need some and may exclude some.
using Features = std::uint32_t;
namespace feature {
constexpr Features kSeparateHead = 1U << 0;
constexpr Features kLatent = 1U << 1;     // latent attention; without it keys and values by head
constexpr Features kQueryRank = 1U << 2;  // and queries are compressed too
constexpr Features kQkNorm = 1U << 3;
constexpr Features kQkvBias = 1U << 4;
constexpr Features kOutputBias = 1U << 5;
constexpr Features kFfnBias = 1U << 6;
constexpr Features kSandwichNorms = 1U << 7;  // before and after attention and feed-forward
constexpr Features kSharedExperts = 1U << 8;
constexpr Features kSharedGate = 1U << 9;
constexpr Features kScoreBias = 1U << 10;       // DeepSeek-V3's correction of expert scores
constexpr Features kMixtralNames = 1U << 11;    // block_sparse_moe, w1, w2, w3
constexpr Features kSharedSingular = 1U << 12;  // shared_expert, not shared_experts
constexpr Features kLinearRouter = 1U << 13;    // the router is a Linear to quantisers
constexpr Features kRopeFreqs = 1U << 14;       // GGUF alone
}  // namespace feature

enum class Stored : std::uint8_t {
  plain,   // never quantised
  linear,  // quantised unless the checkpoint's list of exceptions names it
  listed,  // a Linear too, but quantised by compressed-tensors alone
  f32,     // always F32
};

struct WeightRow {
  std::string_view hf;    // within its layer ("self_attn.q_proj"), or whole; "" is none
  std::string_view gguf;  // likewise ("attn_q"); "" is none
  WeightPart part = WeightPart::other;
  Where where = Where::layer;
  Features needs = 0;
  Features excludes = 0;
  Dim rows = Dim::none;
  Dim cols = Dim::none;
  CutBy by = CutBy::nothing;
  bool cuts_columns = false;
  Stored stored = Stored::linear;
  Features bias = 0;  // with any of these features it has a bias of `rows`; 0: never
};

std::span<const WeightRow> weight_table();

// Names within a layer ("self_attn.q_proj", "mlp.experts.*.up_proj"), numbers as "*", or of the
// model ("model.norm", "lm_head"). nullptr: not one that we know.
const WeightRow* find_hf_row(std::string_view name);
const WeightRow* find_gguf_row(std::string_view name);

// What the model's description says of its layers' weights.
void tell_features(Features features, ModelSpec& model);

std::int64_t dim_size(const ModelSpec& model, Dim dim);
std::int64_t cut_count(const ModelSpec& model, CutBy by);  // of what it divides, in all

}  // namespace plimsoll
