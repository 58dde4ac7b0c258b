#include "worker/engine.h"

#include <utility>

#include <fmt/format.h>

#include "worker/graph/rope.h"

namespace plimsoll {
namespace {

Status place(Arena& arena, Term term, const std::string& purpose, TensorView& view) {
  const Bytes bytes = view.rows * view.cols * static_cast<Bytes>(sizeof(float));
  view.data = TRY(arena.take(term, bytes, purpose)).data();
  return {};
}

Status place(Arena& arena, Term term, const std::string& purpose, SumsView& view) {
  const Bytes bytes = view.rows * view.cols * static_cast<Bytes>(sizeof(double));
  view.data = reinterpret_cast<double*>(TRY(arena.take(term, bytes, purpose)).data());
  return {};
}

Result<DecoderBuffers> place_buffers(const EngineParts& parts) {
  DecoderBuffers buffers =
      decoder_buffer_shapes(*parts.spec, *parts.shards, parts.collective->rank(), parts.limits);
  if (parts.backend->device_memory() != nullptr) {
    buffers.all_logits = f32_view(nullptr, parts.limits.logit_rows_max, parts.spec->vocab);
  }
  Arena& arena = *parts.arena;
  TRY(place(arena, Term::activations, "the residual stream", buffers.x));
  TRY(place(arena, Term::activations, "queries, keys and values", buffers.qkv));
  TRY(place(arena, Term::activations, "the attention's output", buffers.attention));
  TRY(place(arena, Term::activations, "the feed-forward's middle", buffers.ffn));
  TRY(place(arena, Term::activations, "what is normed before it is added", buffers.branch));
  TRY(place(arena, Term::activations, "this rank's partial sums", buffers.partial));
  TRY(place(arena, Term::logits, "the head's input", buffers.logit_inputs));
  TRY(place(arena, Term::logits, "this rank's logits", buffers.logits));
  TRY(place(arena, Term::logits, "all ranks' logits", buffers.all_logits));
  return buffers;
}

}  // namespace

Engine::Engine(const EngineParts& parts, const RankShard& shard, Decoder decoder)
    : StepRunner({.rows_max = parts.limits.rows_max,
                  .logit_rows_max = parts.limits.logit_rows_max,
                  .context_length = parts.limits.context_length}),
      decoder_(std::move(decoder)) {
  cache_.layers = parts.spec->layers;
  cache_.kv_heads = shard.kv_heads.size();
  cache_.head_dim = parts.spec->head_dim;
  cache_.type = parts.kv_type;
}

Result<Engine> Engine::create(const EngineParts& parts) {
  const DecoderFamily* family = find_decoder_family(parts.spec->architecture);
  if (family == nullptr) {
    return invalid(
        fmt::format("no decoder runs models of the family '{}'", parts.spec->architecture));
  }
  const RankShard& shard = parts.shards->ranks[static_cast<std::size_t>(parts.collective->rank())];
  Arena& arena = *parts.arena;
  const DecoderBuffers buffers = TRY(place_buffers(parts));
  const Tokens positions = parts.limits.context_length;
  const RopeTables rope = make_rope_tables(
      *parts.spec, positions, parts.weights->rope_freqs,
      TRY(arena.take(Term::tables, rope_table_bytes(*parts.spec, positions), "rotary tables")));
  const BackendLimits backend = backend_limits(*parts.spec, shard, parts.limits);
  const std::span<std::byte> workspace = TRY(arena.take(
      Term::workspace, parts.backend->workspace_bytes(backend), "the backend's scratch"));
  TRY(parts.backend->set_workspace(backend, workspace));
  return Engine(parts, shard,
                Decoder({.spec = parts.spec,
                         .shards = parts.shards,
                         .weights = parts.weights,
                         .family = family,
                         .backend = parts.backend,
                         .collective = parts.collective,
                         .buffers = buffers,
                         .rope = rope}));
}

Status Engine::take_kv(const KvRequest& request) {
  kv_memory_ = TRY(MappedMemory::create({.bytes = request.blocks * cache_.block_bytes(),
                                         .huge_pages = false,
                                         .purpose = "the KV cache"}));
  if (request.prefault) TRY(kv_memory_.populate("the KV cache (--kv-prefault)"));
  cache_.data = kv_memory_.bytes().data();
  cache_.blocks = request.blocks;
  sequences_.reserve(static_cast<std::size_t>(request.sequences_max));
  return {};
}

Result<TensorView> Engine::compute(const StepPlan& plan) {
  sequences_.clear();
  for (const StepSequence& sequence : plan.sequences) {
    const auto table = std::span(plan.blocks)
                           .subspan(static_cast<std::size_t>(sequence.blocks_begin),
                                    static_cast<std::size_t>(sequence.blocks_count));
    sequences_.push_back({.row = sequence.row,
                          .tokens = sequence.tokens,
                          .position = sequence.position,
                          .blocks = table});
  }
  return decoder_.run(
      {.ids = plan.ids, .sequences = sequences_, .logit_rows = plan.logit_rows, .cache = &cache_});
}

}  // namespace plimsoll
