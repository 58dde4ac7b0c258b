// Decoder: the one decoder graph, written over Backend and Collective; no backend code in it.
//
// x = embedding[ids]; per layer: x += attn_output(attention(qkv(norm(x)))), then
// x += down(act(gate(norm(x))) * up(norm(x))); logits = head(norm(x)), for chosen rows only. What a
// family has beside that (biases, norms of heads, norms before what is added to x, windows) is
// there where its weights or its row in family.h say so. With more than one rank each holds some
// heads and some feed-forward columns, and the two sums into x are all-reduced. Allocates nothing
// in a step.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "shared/base/result.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"
#include "worker/collective/collective.h"
#include "worker/graph/family.h"
#include "worker/graph/rope.h"
#include "worker/graph/weights.h"

namespace plimsoll {

// Rows of a step and of its logits; what buffers are made for.
struct DecoderLimits {
  Tokens rows_max = 0;
  std::int64_t logit_rows_max = 0;
  Tokens context_length = 0;
};

// Memory for the intermediate values of a step, as views of the full size.
struct DecoderBuffers {
  TensorView x;          // [rows, hidden]: the residual stream, the same on every rank
  TensorView qkv;        // [rows, (heads + 2 kv_heads) * head_dim]
  TensorView attention;  // [rows, heads * head_dim]
  TensorView ffn;        // [rows, ffn]
  // [rows, hidden]: what is normed before it is added to x; 0 but while a sum is under way. No rows
  // where no norm comes after.
  TensorView branch;
  SumsView partial;         // [rows, hidden]; no rows where there is one rank
  TensorView logit_inputs;  // [logit_rows, hidden]
  TensorView logits;        // [logit_rows, vocab of the rank]
  // [logit_rows, vocab] of this process's memory; of rank 0 of several, and where a backend's
  // tensors are not in this process's memory.
  TensorView all_logits;
  // [logit_rows, vocab of the rank] of this process's memory, where both is true.
  TensorView read_logits;
};

// The sizes of the views above; `data` is null. activation_bytes() and logit_bytes() are of all
// that belong together, each rounded up to 64.
DecoderBuffers decoder_buffer_shapes(const ModelSpec& spec, const ShardPlan& shards, int rank,
                                     const DecoderLimits& limits);
Bytes activation_bytes(const DecoderBuffers& shapes);
Bytes logit_bytes(const DecoderBuffers& shapes);

// What the backend's workspace must serve.
BackendLimits backend_limits(const ModelSpec& spec, const RankShard& shard,
                             const DecoderLimits& limits);

class Decoder {
 public:
  struct Parts {
    const ModelSpec* spec = nullptr;
    const ShardPlan* shards = nullptr;
    const ModelWeights* weights = nullptr;
    const DecoderFamily* family = nullptr;
    Backend* backend = nullptr;
    Collective* collective = nullptr;
    DecoderBuffers buffers;
    RopeTables rope;
  };
  // REQUIRES: everything pointed at outlives the decoder.
  explicit Decoder(const Parts& parts);

  struct Input {
    std::span<const std::int32_t> ids;         // [rows]
    std::span<const SequenceRows> sequences;   // cover the rows
    std::span<const std::int32_t> logit_rows;  // ascending
    const KvCache* cache = nullptr;
  };
  // On rank 0: the logits [logit_rows, vocab], valid until the next call; elsewhere an empty view.
  // Errors: the backend's and the collective's.
  Result<TensorView> run(const Input& input);
  // The two halves of it. Logits of this rank's part of the vocabulary, as this process can read
  // them; what a backend may record.
  Result<TensorView> compute(const Input& input);
  // Of all ranks, which call it with the same rows.
  Result<TensorView> collect(TensorView own);

 private:
  using NextLinear = Collective::NextLinear;
  // x += the sum over ranks of weight · in; normed first where there is a norm. `next`: what takes
  // x then, if anything does.
  Status add_over_ranks(const PackedMatrix& weight, TensorView in, const float* post_norm,
                        const NextLinear* next, TensorView x);
  Status sum_over_ranks(const PackedMatrix& weight, TensorView in, const NextLinear* next,
                        TensorView x);
  Status run_layer(std::int64_t index, const Input& input, TensorView x);
  Result<TensorView> run_head(const Input& input, TensorView x);

  Parts parts_;
  RankShard shard_;
  std::vector<std::int64_t> vocab_of_rank_;
};

}  // namespace plimsoll
