#include "shared/model/weight_table.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

using namespace feature;  // NOLINT(google-build-using-namespace): constants of this table
using P = WeightPart;
using W = Where;
using D = Dim;

struct Names {
  std::string_view hf;
  std::string_view gguf;
};

struct When {
  Features needs = 0;
  Features excludes = 0;
  Features bias = 0;
};

constexpr WeightRow norm(Names names, Dim size, When when = {}) {
  return {names.hf, names.gguf, P::norms,       W::layer, when.needs,    when.excludes,
          size,     D::none,    CutBy::nothing, false,    Stored::plain, 0};
}

// Each rank holds all of it.
constexpr WeightRow whole(Names names, WeightPart part, Where where, Dim rows, Dim cols,
                          Stored stored, When when = {}) {
  return {names.hf, names.gguf, part,           where, when.needs, when.excludes,
          rows,     cols,       CutBy::nothing, false, stored,     when.bias};
}

// Outputs are divided.
constexpr WeightRow by_rows(Names names, WeightPart part, Where where, Dim rows, Dim cols, CutBy by,
                            When when = {}) {
  return {names.hf, names.gguf, part, where, when.needs,     when.excludes,
          rows,     cols,       by,   false, Stored::linear, when.bias};
}

// Inputs are divided.
constexpr WeightRow by_cols(Names names, WeightPart part, Where where, Dim rows, Dim cols, CutBy by,
                            When when = {}) {
  return {names.hf, names.gguf, part, where, when.needs,     when.excludes,
          rows,     cols,       by,   true,  Stored::linear, when.bias};
}

constexpr WeightRow of_vocabulary(Names names, WeightPart part, Stored stored, When when = {}) {
  return {names.hf, names.gguf, part,         W::model, when.needs, when.excludes,
          D::vocab, D::hidden,  CutBy::vocab, false,    stored,     0};
}

constexpr WeightRow of_drafts(Names names) {
  return {names.hf,  names.gguf,   P::mtp, W::mtp_layer,  0, 0, D::vocab,
          D::hidden, CutBy::vocab, false,  Stored::plain, 0};
}

// The three matrices of a feed-forward.
constexpr WeightRow ffn_in(Names names, WeightPart part, Where where, Dim size, CutBy by,
                           When when = {}) {
  return by_rows(names, part, where, size, D::hidden, by, when);
}
constexpr WeightRow ffn_out(Names names, WeightPart part, Where where, Dim size, CutBy by,
                            When when = {}) {
  return by_cols(names, part, where, D::hidden, size, by, when);
}
constexpr WeightRow dense_in(Names names) {
  return ffn_in(names, P::dense_ffn, W::dense_layer, D::ffn, CutBy::ffn, {0, 0, kFfnBias});
}
constexpr WeightRow dense_out(Names names) {
  return ffn_out(names, P::dense_ffn, W::dense_layer, D::ffn, CutBy::ffn, {0, 0, kFfnBias});
}
constexpr WeightRow expert_in(Names names, When when) {
  return ffn_in(names, P::experts, W::expert, D::expert_ffn, CutBy::expert_ffn, when);
}
constexpr WeightRow expert_out(Names names, When when) {
  return ffn_out(names, P::experts, W::expert, D::expert_ffn, CutBy::expert_ffn, when);
}
constexpr WeightRow shared_in(Names names, When when) {
  return ffn_in(names, P::shared_experts, W::expert_layer, D::shared_ffn, CutBy::shared_ffn, when);
}
constexpr WeightRow shared_out(Names names, When when) {
  return ffn_out(names, P::shared_experts, W::expert_layer, D::shared_ffn, CutBy::shared_ffn, when);
}
constexpr WeightRow router(Names names, Stored stored, When when) {
  return whole(names, P::router, W::expert_layer, D::experts, D::hidden, stored, when);
}

constexpr When kNotMixtral = {0, kMixtralNames, 0};
constexpr When kMixtral = {kMixtralNames, 0, 0};
constexpr When kShared = {kSharedExperts, kSharedSingular, 0};
constexpr When kOneShared = {kSharedExperts | kSharedSingular, 0, 0};
constexpr When kOfLatent = {kLatent, 0, 0};
constexpr When kOfQueryRank = {kLatent | kQueryRank, 0, 0};

constexpr std::array kTable = {
    of_vocabulary({"model.embed_tokens", "token_embd"}, P::embedding, Stored::plain),
    whole({"model.norm", "output_norm"}, P::norms, W::model, D::hidden, D::none, Stored::plain),
    of_vocabulary({"lm_head", "output"}, P::head, Stored::listed, {kSeparateHead, 0, 0}),

    norm({"input_layernorm", "attn_norm"}, D::hidden),
    norm({"post_attention_layernorm", "ffn_norm"}, D::hidden),
    norm({"pre_feedforward_layernorm", "post_attention_norm"}, D::hidden, {kSandwichNorms, 0, 0}),
    norm({"post_feedforward_layernorm", "post_ffw_norm"}, D::hidden, {kSandwichNorms, 0, 0}),

    // Queries, and keys and values by head.
    by_rows({"self_attn.q_proj", "attn_q"}, P::attention, W::layer, D::query, D::hidden,
            CutBy::heads, {0, kQueryRank, kQkvBias}),
    by_rows({"self_attn.k_proj", "attn_k"}, P::attention, W::layer, D::key, D::hidden,
            CutBy::kv_heads, {0, kLatent, kQkvBias}),
    by_rows({"self_attn.v_proj", "attn_v"}, P::attention, W::layer, D::key, D::hidden,
            CutBy::kv_heads, {0, kLatent, kQkvBias}),
    by_cols({"self_attn.o_proj", "attn_output"}, P::attention, W::layer, D::hidden, D::attention,
            CutBy::heads, {0, 0, kOutputBias}),
    norm({"self_attn.q_norm", "attn_q_norm"}, D::head, {kQkNorm, 0, 0}),
    norm({"self_attn.k_norm", "attn_k_norm"}, D::head, {kQkNorm, 0, 0}),

    // Latent attention. What makes the latents is fused, and on every rank.
    whole({"self_attn.q_a_proj", "attn_q_a"}, P::attention, W::layer, D::q_rank, D::hidden,
          Stored::linear, kOfQueryRank),
    norm({"self_attn.q_a_layernorm", "attn_q_a_norm"}, D::q_rank, kOfQueryRank),
    by_rows({"self_attn.q_b_proj", "attn_q_b"}, P::attention, W::layer, D::query, D::q_rank,
            CutBy::heads, kOfQueryRank),
    whole({"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"}, P::attention, W::layer, D::kv_a,
          D::hidden, Stored::linear, kOfLatent),
    norm({"self_attn.kv_a_layernorm", "attn_kv_a_norm"}, D::kv_rank, kOfLatent),
    by_rows({"self_attn.kv_b_proj", "attn_kv_b"}, P::attention, W::layer, D::kv_b, D::kv_rank,
            CutBy::heads, kOfLatent),
    // GGUF has kv_b split already: [heads, kv_rank, nope_dim] and [heads, value_dim, kv_rank].
    by_rows({"", "attn_k_b"}, P::attention, W::layer, D::heads, D::none, CutBy::heads, kOfLatent),
    by_rows({"", "attn_v_b"}, P::attention, W::layer, D::heads, D::none, CutBy::heads, kOfLatent),

    dense_in({"mlp.gate_proj", "ffn_gate"}),
    dense_in({"mlp.up_proj", "ffn_up"}),
    dense_out({"mlp.down_proj", "ffn_down"}),

    router({"mlp.gate", "ffn_gate_inp"}, Stored::plain, {0, kMixtralNames | kLinearRouter, 0}),
    router({"mlp.gate", ""}, Stored::listed, {kLinearRouter, kMixtralNames, 0}),
    router({"block_sparse_moe.gate", ""}, Stored::listed, kMixtral),
    whole({"mlp.gate.e_score_correction_bias", "exp_probs_b"}, P::router, W::expert_layer,
          D::experts, D::none, Stored::f32, {kScoreBias, 0, 0}),
    expert_in({"mlp.experts.*.gate_proj", "ffn_gate_exps"}, kNotMixtral),
    expert_in({"mlp.experts.*.up_proj", "ffn_up_exps"}, kNotMixtral),
    expert_out({"mlp.experts.*.down_proj", "ffn_down_exps"}, kNotMixtral),
    expert_in({"block_sparse_moe.experts.*.w1", ""}, kMixtral),
    expert_in({"block_sparse_moe.experts.*.w3", ""}, kMixtral),
    expert_out({"block_sparse_moe.experts.*.w2", ""}, kMixtral),
    shared_in({"mlp.shared_experts.gate_proj", "ffn_gate_shexp"}, kShared),
    shared_in({"mlp.shared_experts.up_proj", "ffn_up_shexp"}, kShared),
    shared_out({"mlp.shared_experts.down_proj", "ffn_down_shexp"}, kShared),
    shared_in({"mlp.shared_expert.gate_proj", ""}, kOneShared),
    shared_in({"mlp.shared_expert.up_proj", ""}, kOneShared),
    shared_out({"mlp.shared_expert.down_proj", ""}, kOneShared),
    whole({"mlp.shared_expert_gate", "ffn_gate_inp_shexp"}, P::router, W::expert_layer, D::one,
          D::hidden, Stored::listed, {kSharedGate, 0, 0}),

    // A layer that drafts: its input is [embedding | hidden state], each normalised.
    whole({"enorm", "nextn.enorm"}, P::mtp, W::mtp_layer, D::hidden, D::none, Stored::plain),
    whole({"hnorm", "nextn.hnorm"}, P::mtp, W::mtp_layer, D::hidden, D::none, Stored::plain),
    whole({"eh_proj", "nextn.eh_proj"}, P::mtp, W::mtp_layer, D::hidden, D::two_hidden,
          Stored::plain),
    whole({"shared_head.norm", "nextn.shared_head_norm"}, P::mtp, W::mtp_layer, D::hidden, D::none,
          Stored::plain),
    of_drafts({"embed_tokens", "nextn.embed_tokens"}),
    of_drafts({"shared_head.head", "nextn.shared_head_head"}),

    whole({"", "rope_freqs"}, P::norms, W::model, D::none, D::none, Stored::f32,
          {kRopeFreqs, 0, 0}),
};

}  // namespace

std::span<const WeightRow> weight_table() { return kTable; }

const WeightRow* find_hf_row(std::string_view name) {
  const auto* found = std::ranges::find(kTable, name, &WeightRow::hf);
  return found == kTable.end() || name.empty() ? nullptr : found;
}

const WeightRow* find_gguf_row(std::string_view name) {
  const auto* found = std::ranges::find(kTable, name, &WeightRow::gguf);
  return found == kTable.end() || name.empty() ? nullptr : found;
}

void tell_features(Features features, ModelSpec& model) {
  model.has_qkv_bias = (features & kQkvBias) != 0;
  model.has_qk_norms = (features & kQkNorm) != 0;
  model.has_post_norms = (features & kSandwichNorms) != 0;
}

std::int64_t dim_size(const ModelSpec& model, Dim dim) {
  const LatentAttention latent = model.latent.value_or(LatentAttention{});
  switch (dim) {
    case Dim::none:
    case Dim::one:
      return 1;
    case Dim::hidden:
      return model.hidden;
    case Dim::vocab:
      return model.vocab;
    case Dim::query:
      return model.heads * model.head_dim;
    case Dim::key:
      return model.kv_heads * model.head_dim;
    case Dim::attention:
      return model.heads * (model.latent ? latent.value_dim : model.head_dim);
    case Dim::head:
      return model.head_dim;
    case Dim::heads:
      return model.heads;
    case Dim::q_rank:
      return latent.q_rank;
    case Dim::kv_rank:
      return latent.kv_rank;
    case Dim::kv_a:
      return latent.kv_rank + latent.rope_dim;
    case Dim::kv_b:
      return model.heads * (latent.nope_dim + latent.value_dim);
    case Dim::ffn:
      return model.ffn;
    case Dim::expert_ffn:
      return model.experts.ffn;
    case Dim::shared_ffn:
      return model.experts.shared_ffn;
    case Dim::experts:
      return model.experts.count;
    case Dim::two_hidden:
      return 2 * model.hidden;
  }
  return 1;
}

std::int64_t cut_count(const ModelSpec& model, CutBy by) {
  switch (by) {
    case CutBy::nothing:
      return 1;
    case CutBy::heads:
      return model.heads;
    case CutBy::kv_heads:
      return model.kv_heads;
    case CutBy::ffn:
      return model.ffn;
    case CutBy::expert_ffn:
      return model.experts.ffn;
    case CutBy::shared_ffn:
      return model.experts.shared_ffn;
    case CutBy::vocab:
      return model.vocab;
    case CutBy::vision_heads:
      return model.vision ? model.vision->heads : 1;
    case CutBy::vision_ffn:
      return model.vision ? model.vision->ffn : 1;
  }
  return 1;
}

}  // namespace plimsoll
