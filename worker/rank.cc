#include "worker/rank.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <malloc.h>

#include "shared/base/log.h"
#include "shared/machine/device_query.h"
#include "shared/memory/weight_label.h"
#include "shared/model/model_source.h"
#include "worker/process_memory.h"

namespace plimsoll {
namespace {

Result<Bytes> touched_in_all(const std::vector<std::span<const std::byte>>& maps) {
  Bytes touched = 0;
  for (const std::span<const std::byte> map : maps) touched += TRY(touched_bytes(map));
  return touched;
}

}  // namespace

Result<std::unique_ptr<Rank>> Rank::load(Setup setup,
                                         const std::function<void(const LoadProgress&)>& progress) {
  std::unique_ptr<Rank> rank(new Rank(std::move(setup)));
  TRY(rank->start(progress));
  return rank;
}

Status Rank::start(const std::function<void(const LoadProgress&)>& progress) {
  if (setup_.simulated) return start_simulated(progress);
  const GgufFile file = TRY(GgufFile::open(setup_.model_path));
  spec_ = TRY_CONTEXT(setup_.model_path + ": ", read_model_spec(file));
  TRY(open_kept_weights(progress));
  if (DeviceMemory* device = setup_.backend->device_memory()) {
    arena_ = TRY(Arena::create(setup_.plan, *device));
  } else {
    arena_ = TRY(Arena::create(setup_.plan,
                               kept_weights_ ? kept_weights_->bytes() : std::span<std::byte>()));
  }
  const auto index = static_cast<std::size_t>(setup_.collective->rank());
  const bool is_packed = kept_weights_ && kept_weights_->is_sealed();
  weights_ = std::make_unique<ModelWeights>(
      TRY(load_weights(file, spec_, setup_.shards.ranks[index], *setup_.backend, arena_,
                       is_packed ? ArenaWeights::packed : ArenaWeights::to_pack, progress)));
  if (kept_weights_ && !is_packed) TRY(kept_weights_->seal());
  engine_ = std::make_unique<Engine>(
      TRY(Engine::create({.spec = &spec_,
                          .shards = &setup_.shards,
                          .weights = weights_.get(),
                          .backend = setup_.backend.get(),
                          .collective = setup_.collective.get(),
                          .arena = &arena_,
                          .limits = setup_.limits,
                          .kv_type = setup_.kv_type,
                          .kv_blocks_max = setup_.kv_blocks_max,
                          .recorded_rows_max = setup_.recorded_rows_max,
                          .kept_table = setup_.kept_table,
                          .before_waiting = [&] { progress({.waits_for_peers = true}); }})));
  // What reading the header took goes back to the system, so that the same launch always measures
  // the same.
  (void)::malloc_trim(0);
  return {};
}

// Weights that cannot be kept are packed all the same.
Status Rank::open_kept_weights(const std::function<void(const LoadProgress&)>& progress) {
  if (!setup_.kept_weights) return {};
  const Bytes bytes = setup_.plan.packed_weights();
  const Result<std::string> label = weight_label(setup_.model_path, setup_.plan);
  if (!label) return label.error();
  while (!kept_weights_) {
    auto opened = SealedBlock::open(setup_.kept_weights->block.get(), bytes, *label);
    if (!opened) {
      LOG_DEBUG("packs weights that no other process gets: {}", opened.error().message);
      return {};
    }
    if (*opened) {
      kept_weights_ = std::move(**opened);
      break;
    }
    progress({.done = 0, .total = bytes});
    TRY(setup_.kept_weights->wait());
  }
  return {};
}

Status Rank::start_simulated(const std::function<void(const LoadProgress&)>& progress) {
  spec_ = TRY(read_model(setup_.model_path));  // a description is enough
  simulated_ = TRY(SimulatedRank::load({.memory = setup_.simulated->memory,
                                        .simulation = setup_.simulated->simulation,
                                        .plan = setup_.plan,
                                        .kv_blocks = setup_.simulated->kv_blocks,
                                        .rows_max = setup_.limits.rows_max,
                                        .logit_rows_max = setup_.limits.logit_rows_max,
                                        .context_length = setup_.limits.context_length,
                                        .vocab = spec_.vocab,
                                        .pause = setup_.simulated->pause},
                                       *setup_.collective, progress));
  return {};
}

Result<std::optional<ChosenTable>> Rank::choose_table() {
  if (simulated_ != nullptr) return std::optional<ChosenTable>();
  return engine_->choose_table();
}

StepRunner& Rank::engine() {
  if (simulated_ != nullptr) return *simulated_;
  return *engine_;
}

std::string Rank::description() const {
  if (simulated_ != nullptr) return simulated_->description();
  const std::string device = setup_.backend->description();
  if (!setup_.collective->is_on_device()) return device;
  return device + ", adds up by " + std::string(setup_.collective->name());
}

// Every figure of the arena is exact; the rest of the process (heap, stacks, libraries) is what the
// kernel says of it beside them.
Measured Rank::measure() const {
  if (simulated_ != nullptr) return simulated_->measure();
  DeviceMemory* device = setup_.backend->device_memory();
  if (device != nullptr && setup_.context) return measure_device(*device);
  Measured measured;
  std::vector<std::span<const std::byte>> maps = {arena_.memory()};
  if (device != nullptr) {
    maps = device->host_maps();
    measured.terms[term_name(Term::graphs)] = engine_->recording_bytes();
  }
  for (const Term term : kArenaTerms) measured.terms[term_name(term)] = arena_.taken(term);
  // Its part of what all replicas map, whether or not they do yet; all of it where it packed alone.
  const std::int64_t sharers = kept_weights_ ? setup_.plan.weight_sharers : 1;
  const Bytes own_weights = ceil_div(arena_.taken(Term::weights), sharers);
  measured.terms[term_name(Term::weights)] = own_weights;
  measured.source = kPssSource;
  const Bytes block = engine_->cache().block_bytes();
  measured.kv_committed = engine_->cache().blocks * block;
  measured.kv_touched = engine_->kv_blocks_touched() * block;
  const Result<ProcessMemory> process = read_process_memory();
  const Result<std::string> seen = read_maps();
  const Result<ProgramMemory> program =
      seen ? read_program_memory(*seen) : Result<ProgramMemory>(seen.error());
  const Result<Bytes> in_arena = touched_in_all(maps);
  const Result<Bytes> in_kv = engine_->kv_bytes_resident();
  if (process && program && in_arena && in_kv) {
    const Bytes in_kept = kept_weights_ ? proportional_bytes(*seen, kept_weights_->bytes()) : 0;
    measured.resident = process->total;
    if (kept_weights_) measured.resident += own_weights - in_kept;
    measured.terms[term_name(Term::collective)] =
        std::max(process->shared - in_kept, setup_.shared_memory);
    // Of the program its part among the ranks of this plan: workers of an earlier one may not have
    // gone yet, and this one's may not all have begun.
    const std::int64_t processes = std::ssize(setup_.shards.ranks) * setup_.plan.weight_sharers;
    const Bytes of_program = program->own + ceil_div(program->file, processes);
    measured.terms[term_name(Term::process)] = std::max<Bytes>(
        process->total - process->shared - *in_arena - *in_kv - program->proportional + of_program,
        0);
  }
  if (const Result<Machine> machine = query_machine()) {
    measured.free = machine->memory_left();
    if (machine->cgroup_limit > 0) measured.cgroup = machine->cgroup_used;
  }
  return measured;
}

// By the driver's word: what it had less of after each.
Measured Rank::measure_device(DeviceMemory& device) const {
  Measured measured;
  measured.source = "cuMemGetInfo";
  measured.terms[term_name(Term::context)] = *setup_.context;
  for (const Term term : kArenaTerms) measured.terms[term_name(term)] = arena_.held(term);
  measured.terms[term_name(Term::graphs)] = engine_->recording_bytes();
  if (setup_.shared_memory > 0) measured.terms[term_name(Term::collective)] = setup_.shared_memory;
  const Bytes block = engine_->cache().block_bytes();
  measured.kv_committed = engine_->cache().blocks * block;
  measured.kv_touched = engine_->kv_blocks_touched() * block;
  measured.resident = measured.sum() + measured.kv_committed;
  if (const Result<DeviceMemory::State> state = device.state()) {
    measured.free = state->free;
    measured.neighbours = std::max<Bytes>(0, state->total - state->free - measured.resident);
  }
  return measured;
}

}  // namespace plimsoll
