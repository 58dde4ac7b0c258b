#include "worker/graph/decoder.h"

#include <algorithm>

#include "shared/base/check.h"

namespace plimsoll {
namespace {

constexpr Bytes kBufferAlignment = 64;

Bytes view_bytes(const TensorView& view) {
  return round_up(view.rows * view.cols * static_cast<Bytes>(sizeof(float)), kBufferAlignment);
}
Bytes view_bytes(const SumsView& view) {
  return round_up(view.rows * view.cols * static_cast<Bytes>(sizeof(double)), kBufferAlignment);
}

std::int64_t qkv_cols(const ModelSpec& spec, const RankShard& shard) {
  return (shard.heads.size() + 2 * shard.kv_heads.size()) * spec.head_dim;
}

}  // namespace

DecoderBuffers decoder_buffer_shapes(const ModelSpec& spec, const ShardPlan& shards, int rank,
                                     const DecoderLimits& limits) {
  const RankShard& shard = shards.ranks[static_cast<std::size_t>(rank)];
  const bool alone = shards.ranks.size() == 1;
  const auto shape = [](std::int64_t rows, std::int64_t cols) {
    return f32_view(nullptr, rows, cols);
  };
  DecoderBuffers buffers;
  buffers.x = shape(limits.rows_max, spec.hidden);
  buffers.qkv = shape(limits.rows_max, qkv_cols(spec, shard));
  buffers.attention = shape(limits.rows_max, shard.heads.size() * spec.head_dim);
  buffers.ffn = shape(limits.rows_max, shard.ffn.size());
  buffers.branch = shape(spec.has_post_norms ? limits.rows_max : 0, spec.hidden);
  buffers.partial = sums_view(nullptr, alone ? 0 : limits.rows_max, spec.hidden);
  buffers.logit_inputs = shape(limits.logit_rows_max, spec.hidden);
  buffers.logits = shape(limits.logit_rows_max, shard.vocab.size());
  buffers.all_logits = shape(alone || rank != 0 ? 0 : limits.logit_rows_max, spec.vocab);
  return buffers;
}

Bytes activation_bytes(const DecoderBuffers& shapes) {
  return view_bytes(shapes.x) + view_bytes(shapes.qkv) + view_bytes(shapes.attention) +
         view_bytes(shapes.ffn) + view_bytes(shapes.branch) + view_bytes(shapes.partial);
}

Bytes logit_bytes(const DecoderBuffers& shapes) {
  return view_bytes(shapes.logit_inputs) + view_bytes(shapes.logits) +
         view_bytes(shapes.all_logits);
}

BackendLimits backend_limits(const ModelSpec& spec, const RankShard& shard,
                             const DecoderLimits& limits) {
  return {.tokens_max = limits.rows_max,
          .cols_max = std::max({spec.hidden, shard.heads.size() * spec.head_dim, shard.ffn.size()}),
          .rows_max = 2 * shard.ffn.size(),
          .context_max = limits.context_length,
          .heads_max = shard.heads.size(),
          .head_dim = spec.head_dim};
}

Decoder::Decoder(const Parts& parts)
    : parts_(parts),
      shard_(parts.shards->ranks[static_cast<std::size_t>(parts.collective->rank())]) {
  CHECK(std::ssize(parts.shards->ranks) == parts.collective->size());
  for (const RankShard& shard : parts.shards->ranks) vocab_of_rank_.push_back(shard.vocab.size());
}

Result<TensorView> Decoder::run(const Input& input) { return collect(TRY(compute(input))); }

Result<TensorView> Decoder::compute(const Input& input) {
  const auto rows = static_cast<std::int64_t>(input.ids.size());
  CHECK(rows <= parts_.buffers.x.rows);
  CHECK(std::ssize(input.logit_rows) <= parts_.buffers.logit_inputs.rows);
  const TensorView x = parts_.buffers.x.slice_rows(0, rows);  // [rows, hidden]
  parts_.backend->embed(parts_.weights->embedding_table(), input.ids,
                        parts_.family->embedding_scale(*parts_.spec), x);
  for (std::int64_t layer = 0; layer < parts_.spec->layers; ++layer) {
    TRY(run_layer(layer, input, x));
  }
  return run_head(input, x);
}

Status Decoder::run_layer(std::int64_t index, const Input& input, TensorView x) {
  const LayerWeights& layer = parts_.weights->layers[static_cast<std::size_t>(index)];
  const auto eps = static_cast<float>(parts_.spec->norm_eps);
  const TensorView qkv = parts_.buffers.qkv.slice_rows(0, x.rows);
  const TensorView attention = parts_.buffers.attention.slice_rows(0, x.rows);
  const TensorView ffn = parts_.buffers.ffn.slice_rows(0, x.rows);

  parts_.backend->linear({.in = x,
                          .norm = {layer.attn_norm, eps},
                          .weight = &layer.qkv,
                          .epilogue = Epilogue::store,
                          .out = qkv});
  const bool has_window = parts_.spec->has_window(index);
  parts_.backend->attention({.qkv = qkv,
                             .bias = layer.qkv_bias,
                             .q_norm = {layer.q_norm, eps},
                             .k_norm = {layer.k_norm, eps},
                             .sequences = input.sequences,
                             .cache = input.cache,
                             .layer = index,
                             .heads = shard_.heads.size(),
                             .scale = parts_.family->attention_scale(*parts_.spec),
                             .window = has_window ? parts_.spec->window : 0,
                             .rope = has_window ? parts_.rope.window : parts_.rope.full,
                             .out = attention});
  const NextLinear feed_forward = {{layer.ffn_norm, eps}, &layer.gate_up};
  TRY(add_over_ranks(layer.attn_output, attention, layer.post_attention_norm, &feed_forward, x));
  parts_.backend->linear({.in = x,
                          .norm = {layer.ffn_norm, eps},
                          .weight = &layer.gate_up,
                          .epilogue = parts_.family->gate,
                          .out = ffn});
  if (index + 1 == parts_.spec->layers) {
    return add_over_ranks(layer.ffn_down, ffn, layer.post_ffn_norm, nullptr, x);
  }
  const LayerWeights& after = parts_.weights->layers[static_cast<std::size_t>(index + 1)];
  const NextLinear attends = {{after.attn_norm, eps}, &after.qkv};
  return add_over_ranks(layer.ffn_down, ffn, layer.post_ffn_norm, &attends, x);
}

Status Decoder::add_over_ranks(const PackedMatrix& weight, TensorView in, const float* post_norm,
                               const NextLinear* next, TensorView x) {
  if (post_norm == nullptr) return sum_over_ranks(weight, in, next, x);
  const TensorView branch = parts_.buffers.branch.slice_rows(0, x.rows);
  TRY(sum_over_ranks(weight, in, nullptr, branch));
  parts_.backend->add_normed(branch, {post_norm, static_cast<float>(parts_.spec->norm_eps)}, x);
  return {};
}

// x += the sum over ranks of weight · in.
Status Decoder::sum_over_ranks(const PackedMatrix& weight, TensorView in, const NextLinear* next,
                               TensorView x) {
  if (parts_.collective->size() == 1) {
    parts_.backend->linear(
        {.in = in, .norm = {}, .weight = &weight, .epilogue = Epilogue::add, .out = x});
    return {};
  }
  const SumsView partial = parts_.buffers.partial.slice_rows(0, x.rows);
  parts_.backend->linear({.in = in,
                          .norm = {},
                          .weight = &weight,
                          .epilogue = Epilogue::partial,
                          .out = {},
                          .sums = partial});
  return next == nullptr ? parts_.collective->all_reduce_add(partial, x)
                         : parts_.collective->all_reduce_add_norm(partial, x, *next);
}

Result<TensorView> Decoder::run_head(const Input& input, TensorView x) {
  const std::int64_t rows = std::ssize(input.logit_rows);
  const bool alone = parts_.collective->size() == 1;
  if (rows == 0) return TensorView{};
  const TensorView chosen = parts_.buffers.logit_inputs.slice_rows(0, rows);
  parts_.backend->copy_rows(x, input.logit_rows, chosen);
  const TensorView logits = parts_.buffers.logits.slice_rows(0, rows);
  LinearCall call{.in = chosen,
                  .norm = {parts_.weights->output_norm, static_cast<float>(parts_.spec->norm_eps)},
                  .weight = &parts_.weights->head,
                  .epilogue = Epilogue::store,
                  .out = logits};
  if (parts_.weights->tied_head) {
    call.row_begin = shard_.vocab.begin;
    call.row_end = shard_.vocab.end;
  }
  parts_.backend->linear(call);
  const TensorView& copy = alone ? parts_.buffers.all_logits : parts_.buffers.read_logits;
  return parts_.backend->read(
      logits, std::span(copy.f32(), static_cast<std::size_t>(copy.rows * copy.cols)));
}

Result<TensorView> Decoder::collect(TensorView own) {
  // No rows on any rank: there is nothing to gather.
  if (own.rows == 0 || parts_.collective->size() == 1) return own;
  const bool collects = parts_.collective->rank() == 0;
  const TensorView all =
      collects ? parts_.buffers.all_logits.slice_rows(0, own.rows) : TensorView{};
  TRY(parts_.collective->gather(own, vocab_of_rank_, all));
  return all;
}

}  // namespace plimsoll
