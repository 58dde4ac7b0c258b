#include "worker/engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "shared/memory/graph_sizes.h"
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
  Arena& arena = *parts.arena;
  if (DeviceMemory* device = parts.backend->device_memory()) {
    const std::int64_t rows = parts.limits.logit_rows_max;
    if (parts.collective->rank() == 0) {
      const Bytes bytes = rows * parts.spec->vocab * static_cast<Bytes>(sizeof(float));
      const auto memory = TRY(device->allocate_host(bytes, "logits for the sampler"));
      buffers.all_logits =
          f32_view(reinterpret_cast<float*>(memory.data()), rows, parts.spec->vocab);
    }
    if (parts.collective->size() > 1) {
      const std::int64_t cols = buffers.logits.cols;
      const auto own = TRY(device->allocate_host(rows * cols * static_cast<Bytes>(sizeof(float)),
                                                 "logits for the other ranks"));
      buffers.read_logits = f32_view(reinterpret_cast<float*>(own.data()), rows, cols);
    }
  } else {
    TRY(place(arena, Term::logits, "all ranks' logits", buffers.all_logits));
  }
  TRY(place(arena, Term::activations, "the residual stream", buffers.x));
  TRY(place(arena, Term::activations, "queries, keys and values", buffers.qkv));
  TRY(place(arena, Term::activations, "the attention's output", buffers.attention));
  TRY(place(arena, Term::activations, "the feed-forward's middle", buffers.ffn));
  TRY(place(arena, Term::activations, "what is normed before it is added", buffers.branch));
  TRY(place(arena, Term::activations, "this rank's partial sums", buffers.partial));
  TRY(place(arena, Term::logits, "the head's input", buffers.logit_inputs));
  TRY(place(arena, Term::logits, "this rank's logits", buffers.logits));
  return buffers;
}

// On a device they are made here and written there.
Result<RopeTables> place_rope_tables(const EngineParts& parts) {
  const ModelSpec& spec = *parts.spec;
  const Tokens positions = parts.limits.context_length;
  const Bytes bytes = rope_table_bytes(spec, positions);
  const auto memory = TRY(parts.arena->take(Term::tables, bytes, "rotary tables"));
  const float* freqs = parts.weights->rope_freqs;
  DeviceMemory* device = parts.backend->device_memory();
  if (device == nullptr) return make_rope_tables(spec, positions, freqs, memory);
  std::vector<float> own_freqs;
  if (freqs != nullptr) {
    own_freqs.resize(static_cast<std::size_t>(spec.rope_dim / 2));
    TensorView view = f32_view(const_cast<float*>(freqs), 1, std::ssize(own_freqs));
    TRY(parts.backend->read(view, own_freqs));
    freqs = own_freqs.data();
  }
  std::vector<std::byte> made(static_cast<std::size_t>(bytes));
  RopeTables tables = make_rope_tables(spec, positions, freqs, made);
  TRY(device->write(made, memory.data()));
  const auto move = [&](const float*& pointer) {
    pointer = reinterpret_cast<const float*>(
        memory.data() + (reinterpret_cast<const std::byte*>(pointer) - made.data()));
  };
  for (RopeTable* table : {&tables.full, &tables.window}) {
    move(table->cos);
    move(table->sin);
  }
  return tables;
}

}  // namespace

Engine::Engine(const EngineParts& parts, const RankShard& shard, Decoder decoder)
    : StepRunner({.rows_max = parts.limits.rows_max,
                  .logit_rows_max = parts.limits.logit_rows_max,
                  .context_length = parts.limits.context_length}),
      decoder_(std::make_unique<Decoder>(std::move(decoder))),
      cache_(std::make_unique<KvCache>()),
      collective_(parts.collective),
      test_{.cols = parts.spec->hidden, .rows_max = parts.limits.rows_max},
      kept_table_(parts.kept_table) {
  cache_->layers = parts.spec->layers;
  cache_->kv_heads = shard.kv_heads.size();
  cache_->head_dim = parts.spec->head_dim;
  cache_->type = parts.kv_type;
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
  const RopeTables rope = TRY(place_rope_tables(parts));
  const BackendLimits backend = backend_limits(*parts.spec, shard, parts.limits);
  const std::span<std::byte> workspace = TRY(arena.take(
      Term::workspace, parts.backend->workspace_bytes(backend), "the backend's scratch"));
  TRY(parts.backend->set_workspace(backend, workspace));
  Engine engine(parts, shard,
                Decoder({.spec = parts.spec,
                         .shards = parts.shards,
                         .weights = parts.weights,
                         .family = family,
                         .backend = parts.backend,
                         .collective = parts.collective,
                         .buffers = buffers,
                         .rope = rope}));
  TRY(engine.prepare_device(parts, buffers));
  return engine;
}

// KV's place and, before its memory is, all that a device needs for steps.
Status Engine::prepare_device(const EngineParts& parts, const DecoderBuffers& buffers) {
  DeviceMemory* device = parts.backend->device_memory();
  if (device == nullptr) return {};
  const Bytes before = TRY(device->state()).free;
  device_kv_ = TRY(DeviceKv::reserve(*device, cache_->block_bytes(), parts.kv_blocks_max));
  cache_->data = device_kv_->data();
  cache_->has_null_block = true;
  const bool is_alone = parts.collective->size() == 1;
  if (!is_alone) TRY(meet_peers(parts, buffers));
  const bool records =
      parts.backend->can_record() && (is_alone || parts.collective->is_on_device());
  const std::int64_t largest =
      records
          ? std::min({parts.recorded_rows_max, parts.limits.rows_max, parts.limits.logit_rows_max})
          : 0;
  if (largest > 0) {
    recorder_ = TRY(StepRecorder::create({.backend = parts.backend,
                                          .decoder = decoder_.get(),
                                          .cache = cache_.get(),
                                          .sizes = graph_sizes(largest),
                                          .rows_max = parts.limits.rows_max,
                                          .context_length = parts.limits.context_length,
                                          .vocab = parts.spec->vocab}));
  }
  recording_bytes_ = std::max<Bytes>(0, before - TRY(device->state()).free);
  return {};
}

// Before the ranks' first steps, which wait for each other on their devices, and whose recordings
// keep to the algorithms that they were made with.
Status Engine::meet_peers(const EngineParts& parts, const DecoderBuffers& buffers) {
  if (parts.before_waiting) parts.before_waiting();
  TRY(parts.collective->await_peers(kPeersPatience));
  if (!parts.collective->is_on_device()) return {};
  SelfTestSetup setup = test_;
  setup.device = {.backend = parts.backend, .partial = buffers.partial, .sum = buffers.x};
  chosen_table_ = TRY(plimsoll::choose_table(*collective_, kept_table_, setup));
  return {};
}

Result<std::optional<ChosenTable>> Engine::choose_table() {
  if (!chosen_table_) chosen_table_ = TRY(plimsoll::choose_table(*collective_, kept_table_, test_));
  return chosen_table_;
}

Status Engine::take_kv(const KvRequest& request) {
  sequences_.reserve(static_cast<std::size_t>(request.sequences_max));
  cache_->blocks = request.blocks;
  if (device_kv_) return device_kv_->map(request.blocks);
  kv_memory_ = TRY(MappedMemory::create({.bytes = request.blocks * cache_->block_bytes(),
                                         .huge_pages = false,
                                         .purpose = "the KV cache"}));
  if (request.prefault) TRY(kv_memory_.populate("the KV cache (--kv-prefault)"));
  cache_->data = kv_memory_.bytes().data();
  return {};
}

Decoder::Input Engine::input_of(const StepPlan& plan) {
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
  return {.ids = plan.ids,
          .sequences = sequences_,
          .logit_rows = plan.logit_rows,
          .cache = cache_.get()};
}

Result<TensorView> Engine::compute(const StepPlan& plan) {
  const Decoder::Input input = input_of(plan);
  return recorder_ && recorder_->serves(input) ? recorder_->run(input) : decoder_->run(input);
}

// Of several ranks none has all logits on its device.
Result<StepRunner::Sampled> Engine::compute_sampled(const StepPlan& plan,
                                                    std::span<const cuda::RowSample> rows) {
  const Decoder::Input input = input_of(plan);
  const bool is_sampled = recorder_ && recorder_->samples() && recorder_->serves(input) &&
                          collective_->size() == 1 && rows.size() == plan.logit_rows.size();
  if (!is_sampled) return StepRunner::compute_sampled(plan, rows);
  const RowSampling::Sampled sampled = TRY(recorder_->run(input, rows));
  return Sampled{.tokens = sampled.tokens, .logits = sampled.logits};
}

}  // namespace plimsoll
