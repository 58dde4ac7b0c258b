#include "tests/worker/rank_group.h"

#include <utility>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "shared/memory/collective_bytes.h"
#include "shared/model/gguf.h"
#include "tests/worker/collective/ipc_sockets.h"
#include "worker/collective/ipc_collective.h"
#include "worker/collective/shm_collective.h"
#include "worker/graph/rope.h"

namespace plimsoll {

RankPlan exact_plan(const ModelSpec& spec, const ShardPlan& shards, int rank,
                    const DecoderLimits& limits, const Backend& backend) {
  const RankShard& shard = shards.ranks[static_cast<std::size_t>(rank)];
  const DecoderBuffers shapes = decoder_buffer_shapes(spec, shards, rank, limits);
  RankPlan plan;
  plan.rank = rank;
  plan.shard = shard;
  const auto add = [&](Term term, Bytes bytes) {
    plan.rows.push_back({.term = term, .bytes = bytes, .formula = {}});
  };
  add(Term::weights, rank_weights(spec, shard).bytes());
  add(Term::tables, rope_table_bytes(spec, limits.context_length));
  add(Term::activations, activation_bytes(shapes));
  add(Term::workspace, backend.workspace_bytes(backend_limits(spec, shard, limits)));
  add(Term::logits, logit_bytes(shapes));
  return plan;
}

RankGroup::Thread::~Thread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RankGroup::Thread::begin(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_all();
}

void RankGroup::Thread::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return work_ == nullptr; });
}

void RankGroup::Thread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return work_ != nullptr || ends_; });
    if (work_ == nullptr) return;
    lock.unlock();
    work_();
    lock.lock();
    work_ = nullptr;
    changed_.notify_all();
  }
}

// Each on its thread: a device is its thread's.
RankGroup::~RankGroup() {
  on_all([this](int index) { ranks_[static_cast<std::size_t>(index)].reset(); });
}

void RankGroup::on_all(const std::function<void(int)>& work) {
  for (int index = 1; index < size(); ++index) {
    threads_[static_cast<std::size_t>(index - 1)]->begin([&work, index] { work(index); });
  }
  work(0);
  for (const auto& thread : threads_) thread->wait();
}

std::vector<std::vector<float>> RankGroup::run(const StepPlan& plan) {
  const Status sound = check_step(plan, rank(0).engine().step_limits());
  EXPECT_TRUE(sound) << sound.error().message;
  std::vector<std::vector<float>> rows;
  on_all([&](int index) {
    const auto logits = rank(index).engine().run(plan);
    ASSERT_TRUE(logits) << logits.error().message;
    if (index != 0) return;
    for (std::int64_t row = 0; row < logits->rows; ++row) {
      rows.emplace_back(logits->row(row), logits->row(row) + logits->cols);
    }
  });
  return rows;
}

void RankGroup::start() {
  const auto file = GgufFile::open(options_.model);
  ASSERT_TRUE(file) << file.error().message;
  const auto spec = read_model_spec(*file);
  ASSERT_TRUE(spec) << spec.error().message;
  const auto shards = plan_shards(*spec, options_.ranks);
  ASSERT_TRUE(shards) << shards.error().message;
  const ReplicaSegmentShape shape{.ranks = options_.ranks};
  auto memory = SharedBlock::create("rank group", replica_segment_bytes(shape));
  ASSERT_TRUE(memory) << memory.error().message;
  memory_.emplace(std::move(*memory));
  const auto segment = init_replica_segment(memory_->bytes(), shape);
  ASSERT_TRUE(segment) << segment.error().message;
  segment_.emplace(*segment);
  sockets_ = connect_ranks(options_.ranks);
  ranks_.resize(static_cast<std::size_t>(options_.ranks));
  for (int index = 1; index < options_.ranks; ++index) {
    threads_.push_back(std::make_unique<Thread>());
  }
  on_all([&](int index) { start_rank(index, *spec, *shards); });
  for (const auto& rank : ranks_) ASSERT_NE(rank, nullptr);
}

std::unique_ptr<Collective> RankGroup::make_collective(int index, cuda::DeviceRuntime* runtime,
                                                       Backend& backend) {
  if (options_.ranks == 1) return make_single_collective();
  ShmCollectiveOptions options;
  options.rank = index;
  auto collective = make_shm_collective(*segment_, options);
  if (collective && runtime != nullptr) {
    collective =
        make_ipc_collective({.segment = *segment_,
                             .segment_memory = memory_->bytes(),
                             .rank = index,
                             .host = std::move(*collective),
                             .runtime = runtime,
                             .norms = options_.fuses_norms ? &norm_sink(backend) : nullptr,
                             .sockets = std::move(sockets_[static_cast<std::size_t>(index)]),
                             .buffer_bytes = kHostIpcBytes});
  }
  EXPECT_TRUE(collective) << collective.error().message;
  return collective ? std::move(*collective) : nullptr;
}

void RankGroup::start_rank(int index, const ModelSpec& spec, const ShardPlan& shards) {
  CpuBackendOptions backend_options;
  backend_options.threads = options_.threads;
  backend_options.spin = false;
  backend_options.path = options_.path;
  backend_options.activations = options_.activations;
  auto runtime = options_.make_runtime ? options_.make_runtime() : nullptr;
  cuda::DeviceRuntime* const device = runtime.get();
  auto backend = device != nullptr       ? Result(make_cuda_backend(std::move(runtime)))
                 : options_.make_backend ? Result(options_.make_backend())
                                         : make_cpu_backend(backend_options);
  ASSERT_TRUE(backend) << backend.error().message;
  auto collective = make_collective(index, device, **backend);
  ASSERT_NE(collective, nullptr);
  Rank::Setup setup{.model_path = options_.model,
                    .shards = shards,
                    .plan = exact_plan(spec, shards, index, options_.limits, **backend),
                    .limits = options_.limits,
                    .kv_type = options_.kv_type,
                    .kv_blocks_max = options_.kv_blocks,
                    .recorded_rows_max = options_.recorded_rows_max,
                    .backend = std::move(*backend),
                    .collective = std::move(collective)};
  if (options_.kept_weights >= 0) {
    setup.kept_weights = {.block = UniqueFd(::dup(options_.kept_weights)),
                          .wait = [] { return unavailable("another packs"); }};
  }
  auto rank = Rank::load(std::move(setup), [](const LoadProgress&) {});
  ASSERT_TRUE(rank) << rank.error().message;
  const Status kv = (*rank)->engine().allocate_kv(
      {.blocks = options_.kv_blocks, .sequences_max = options_.sequences_max});
  ASSERT_TRUE(kv) << kv.error().message;
  ranks_[static_cast<std::size_t>(index)] = std::move(*rank);
}

void append_rows(StepPlan& plan, const PlannedRows& rows) {
  StepSequence sequence;
  sequence.row = static_cast<std::int32_t>(plan.ids.size());
  sequence.tokens = static_cast<std::int32_t>(rows.end - rows.begin);
  sequence.position = static_cast<std::int32_t>(rows.begin);
  sequence.blocks_begin = static_cast<std::int32_t>(plan.blocks.size());
  sequence.blocks_count =
      static_cast<std::int32_t>(ceil_div(static_cast<std::int64_t>(rows.end), kKvBlockTokens));
  for (std::int32_t i = 0; i < sequence.blocks_count; ++i) {
    plan.blocks.push_back(rows.first_block + i);
  }
  for (std::size_t i = rows.begin; i < rows.end; ++i) {
    if (i + rows.logit_rows >= rows.end) {
      plan.logit_rows.push_back(static_cast<std::int32_t>(plan.ids.size()));
    }
    plan.ids.push_back(rows.tokens[i]);
  }
  plan.sequences.push_back(sequence);
}

}  // namespace plimsoll
