#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/launches.h"
#include "kernels/cuda/linear_call.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/recorded_steps.h"
#include "kernels/cuda/row_sampler.h"
#include "kernels/cuda/step_tables.h"
#include "kernels/cuda/weight_upload.h"
#include "kernels/cuda/workspace.h"
#include "kernels/op_checks.h"
#include "shared/base/check.h"

namespace plimsoll {
namespace {

using cuda::Kernel;

constexpr unsigned kRowThreads = 256;
constexpr std::int64_t kFloatCols = 8;  // that a lane loads at once
constexpr unsigned kRopeWarps = 4;

void require(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "CHECK failed: %s\n", status.error().message.c_str());
  std::abort();
}

std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

class CudaBackend final : public Backend,
                          public DeviceMemory,
                          public cuda::NormSink,
                          public RowSampling {
 public:
  explicit CudaBackend(std::unique_ptr<cuda::DeviceRuntime> runtime)
      : runtime_(std::move(runtime)), upload_(*runtime_) {}

  std::string description() const override {
    return "cuda on " + runtime_->description() + ", int8 activations";
  }

  DeviceMemory* device_memory() override { return this; }
  Result<State> state() override { return runtime_->memory(); }
  Result<std::span<std::byte>> allocate(Bytes bytes, const std::string& purpose) override {
    return runtime_->allocate(bytes, purpose);
  }
  Result<std::span<std::byte>> allocate_host(Bytes bytes, const std::string& purpose) override {
    return runtime_->allocate_host(bytes, purpose);
  }
  Bytes granule() const override { return runtime_->granule(); }
  Result<std::span<std::byte>> reserve(Bytes bytes, const std::string& purpose) override {
    return runtime_->reserve(bytes, purpose);
  }
  Status map(std::span<std::byte> part, const std::string& purpose) override {
    return runtime_->map(part, purpose);
  }
  std::vector<std::span<const std::byte>> host_maps() const override {
    return runtime_->host_maps();
  }
  Status write(std::span<const std::byte> from, std::byte* to) override {
    runtime_->copy_in(to, from.data(), from.size());
    return runtime_->synchronize();
  }

  Bytes workspace_bytes(const BackendLimits& limits) const override {
    cuda::Workspace nowhere;
    return cuda::carve_workspace(limits, nullptr, nowhere) + cuda::kWorkspaceAlignment;
  }
  Status set_workspace(const BackendLimits& limits, std::span<std::byte> memory) override;
  Result<PackedPart> pack(const StoredSlice& slice, std::span<std::byte> destination) override;
  void embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale,
             TensorView out) override;
  void linear(const LinearCall& call) override;
  void add_normed(TensorView in, Norm norm, TensorView out) override;
  void attention(const AttentionCall& call) override;
  void copy_rows(TensorView in, std::span<const std::int32_t> rows, TensorView out) override;
  Result<TensorView> read(TensorView from, std::span<float> to) override;
  cuda::NormArguments take_norm(TensorView in, Norm norm, const PackedMatrix& weight) override;
  bool can_record() const override { return true; }
  Status record(std::int64_t rows, const std::function<Status()>& step) override;
  Result<TensorView> replay(const DecodeInputs& inputs) override;
  bool can_sample(std::int64_t vocab) const override { return cuda::RowSampler::fits(vocab); }
  Result<Sampled> replay_and_sample(const DecodeInputs& inputs,
                                    std::span<const cuda::RowSample> rows) override;

 private:
  // Host memory that a copy to the device is made from.
  struct Staging {
    std::byte* memory = nullptr;
    bool is_in_flight = false;
  };

  template <typename T>
  T* stage(Staging& staging);
  void copy_words(std::span<const std::int32_t> words, Staging& staging, std::int32_t* to);
  cuda::NormArguments norm_arguments(TensorView in, Norm norm, const PackedMatrix& weight) const;
  void normalise(const LinearCall& call);
  void multiply(const LinearCall& call, std::size_t index, std::int64_t first_row);
  void load_step(std::span<const SequenceRows> sequences, std::int64_t heads_per_kv_head);
  void store(const AttentionCall& call, const cuda::KvPages& pages);
  void attend(const AttentionCall& call, const cuda::KvPages& pages);
  Result<cuda::RecordedStep> start_replay(const DecodeInputs& inputs);
  // Of the stream's work; what it failed by is told by `read`.
  void wait();
  void fail(Error error);

  std::unique_ptr<cuda::DeviceRuntime> runtime_;
  cuda::WeightUpload upload_;
  BackendLimits limits_;
  cuda::Workspace space_;
  Staging ids_, rows_, tables_;
  std::optional<cuda::TakenNorm> taken_norm_;
  // That attention was called for.
  std::int64_t last_layer_ = std::numeric_limits<std::int64_t>::max();
  cuda::StepCounts counts_;  // of the step in the tables
  cuda::RecordedSteps recorded_;
  cuda::RecordedStep* recording_ = nullptr;  // whose calls come now
  cuda::RowSampler sampler_;
  std::optional<Error> failure_;
};

Status CudaBackend::set_workspace(const BackendLimits& limits, std::span<std::byte> memory) {
  const Bytes needed = workspace_bytes(limits);
  if (std::ssize(memory) < needed) {
    return internal_error("set the GPU's workspace: " + std::to_string(memory.size()) +
                          " bytes given, " + std::to_string(needed) + " needed");
  }
  limits_ = limits;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto aligned = round_up(static_cast<Bytes>(address), cuda::kWorkspaceAlignment);
  cuda::carve_workspace(limits, memory.data() + (aligned - static_cast<Bytes>(address)), space_);
  const auto host = [&](Bytes bytes, const char* purpose, Staging& staging) -> Status {
    staging = {TRY(runtime_->allocate_host(bytes, purpose)).data(), false};
    return {};
  };
  constexpr auto kWord = static_cast<Bytes>(sizeof(std::int32_t));
  TRY(host(limits.tokens_max * kWord, "token ids", ids_));
  TRY(host(limits.tokens_max * kWord, "rows of logits", rows_));
  TRY(sampler_.start(*runtime_, limits.tokens_max));
  return host(cuda::step_table_bytes(cuda::step_table_limits(limits)), "block tables", tables_);
}

Result<PackedPart> CudaBackend::pack(const StoredSlice& slice, std::span<std::byte> destination) {
  TRY(check_pack(slice, destination));
  const cuda::WeightFormat format = cuda::weight_format(slice.dtype);
  const std::int64_t cols = slice.col_end - slice.col_begin;
  if (!cuda::is_quantised(format) && cols % kFloatCols != 0) {
    return invalid("a " + std::string(dtype_info(slice.dtype).name) + " weight of " +
                   std::to_string(cols) + " columns: GPUs read 8 at a time");
  }
  TRY(upload_.pack(slice, destination));
  return PackedPart{.dtype = slice.dtype,
                    .rows = slice.row_end - slice.row_begin,
                    .cols = cols,
                    .data = destination.data()};
}

void CudaBackend::wait() {
  if (const Status done = runtime_->synchronize(); !done) fail(done.error());
  for (Staging* staging : {&ids_, &rows_, &tables_}) staging->is_in_flight = false;
}

void CudaBackend::fail(Error error) {
  if (!failure_) failure_ = std::move(error);
}

// To be written and copied from: only once what was copied before has arrived.
template <typename T>
T* CudaBackend::stage(Staging& staging) {
  if (staging.is_in_flight) wait();
  staging.is_in_flight = true;
  return reinterpret_cast<T*>(staging.memory);
}

// Of a step that is recorded they come with each replay.
void CudaBackend::copy_words(std::span<const std::int32_t> words, Staging& staging,
                             std::int32_t* to) {
  if (recording_ != nullptr) return;
  auto* staged = stage<std::int32_t>(staging);
  std::ranges::copy(words, staged);
  runtime_->copy_in(to, staged, words.size_bytes());
}

void CudaBackend::embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale,
                        TensorView out) {
  require(check_embed(table, ids, out));
  taken_norm_.reset();
  CHECK(table.parts.size() == 1 && std::ssize(ids) <= limits_.tokens_max);
  if (ids.empty()) return;
  copy_words(ids, ids_, space_.ids);
  runtime_->launch(Kernel::embed_rows,
                   {.grid = {static_cast<unsigned>(ids.size())}, .block = {kRowThreads}},
                   cuda::EmbedArguments{
                       .table = reinterpret_cast<const unsigned char*>(table.parts[0].data),
                       .format = cuda::weight_format(table.parts[0].dtype),
                       .cols = narrow(table.cols),
                       .ids = space_.ids,
                       .scale = scale,
                       .out = out.f32(),
                       .out_stride = out.stride,
                   });
}

void CudaBackend::copy_rows(TensorView in, std::span<const std::int32_t> rows, TensorView out) {
  CHECK(std::ssize(rows) == out.rows && in.cols == out.cols && out.rows <= limits_.tokens_max);
  taken_norm_.reset();
  if (rows.empty()) return;
  copy_words(rows, rows_, space_.rows);
  runtime_->launch(Kernel::copy_rows,
                   {.grid = {static_cast<unsigned>(rows.size())}, .block = {kRowThreads}},
                   cuda::CopyRowsArguments{.in = in.f32(),
                                           .in_stride = in.stride,
                                           .rows = space_.rows,
                                           .cols = narrow(in.cols),
                                           .out = out.f32(),
                                           .out_stride = out.stride});
}

Result<TensorView> CudaBackend::read(TensorView from, std::span<float> to) {
  CHECK(from.stride == from.cols && std::ssize(to) >= from.rows * from.cols);
  if (recording_ != nullptr) {
    recording_->from = from;
    recording_->to = to;
    return f32_view(to.data(), from.rows, from.cols);
  }
  if (from.rows > 0) {
    runtime_->copy_out(to.data(), from.f32(),
                       static_cast<std::size_t>(from.rows * from.cols) * sizeof(float));
  }
  wait();
  if (failure_) return *failure_;
  return f32_view(to.data(), from.rows, from.cols);
}

cuda::NormArguments CudaBackend::norm_arguments(TensorView in, Norm norm,
                                                const PackedMatrix& weight) const {
  const auto quantised = [](const PackedPart& part) {
    return cuda::is_quantised(cuda::weight_format(part.dtype));
  };
  return {.in = in.f32(),
          .in_stride = in.stride,
          .weight = norm.weight,
          .eps = norm.eps,
          .cols = narrow(in.cols),
          .quants = std::ranges::any_of(weight.parts, quantised) ? space_.quants : nullptr,
          .scales = space_.scales,
          .values = std::ranges::all_of(weight.parts, quantised) ? nullptr : space_.values,
          .added = nullptr,
          .added_stride = 0,
          .cleared = nullptr};
}

cuda::NormArguments CudaBackend::take_norm(TensorView in, Norm norm, const PackedMatrix& weight) {
  taken_norm_ = cuda::TakenNorm::of(in, norm);
  return norm_arguments(in, norm, weight);
}

void CudaBackend::normalise(const LinearCall& call) {
  const auto taken = std::exchange(taken_norm_, std::nullopt);
  if (taken == cuda::TakenNorm::of(call.in, call.norm)) return;
  runtime_->launch(Kernel::rms_norm,
                   {.grid = {static_cast<unsigned>(call.in.rows)}, .block = {kRowThreads}},
                   norm_arguments(call.in, call.norm, *call.weight));
}

void CudaBackend::add_normed(TensorView in, Norm norm, TensorView out) {
  require(check_add_normed(in, norm, out));
  taken_norm_.reset();
  if (in.rows == 0) return;
  runtime_->launch(Kernel::rms_norm,
                   {.grid = {static_cast<unsigned>(in.rows)}, .block = {kRowThreads}},
                   cuda::NormArguments{.in = in.f32(),
                                       .in_stride = in.stride,
                                       .weight = norm.weight,
                                       .eps = norm.eps,
                                       .cols = narrow(in.cols),
                                       .quants = nullptr,
                                       .scales = nullptr,
                                       .values = nullptr,
                                       .added = out.f32(),
                                       .added_stride = out.stride,
                                       .cleared = in.f32()});
}

// Part `index` of the weight, whose first row is `first_row` of the output.
void CudaBackend::multiply(const LinearCall& call, std::size_t index, std::int64_t first_row) {
  const cuda::WeightFormat format = cuda::weight_format(call.weight->parts[index].dtype);
  const cuda::LinearArguments arguments = cuda::linear_arguments(call, index, first_row, space_);
  const cuda::ChosenKernel chosen = cuda::choose_linear(format, arguments);
  runtime_->launch(chosen.kernel, chosen.shape, arguments);
}

void CudaBackend::linear(const LinearCall& call) {
  require(check_linear(call, limits_));
  if (call.in.rows == 0) return;
  const std::vector<PackedPart>& parts = call.weight->parts;
  const bool is_pair = is_gated(call.epilogue);
  if (is_pair && parts[0].dtype != parts[1].dtype) {
    fail(invalid("gate and up have different types (" +
                 std::string(dtype_info(parts[0].dtype).name) + ", " +
                 std::string(dtype_info(parts[1].dtype).name) +
                 "), which the CUDA backend cannot multiply yet; use --devices cpu"));
    return;
  }
  normalise(call);
  std::int64_t first_row = 0;
  for (std::size_t i = 0; i < (is_pair ? 1 : parts.size()); ++i) {
    multiply(call, i, first_row);
    first_row += parts[i].rows;
  }
}

void CudaBackend::load_step(std::span<const SequenceRows> sequences,
                            std::int64_t heads_per_kv_head) {
  const auto limits = cuda::step_table_limits(limits_);
  auto* staged = stage<std::byte>(tables_);
  Result<cuda::StepCounts> counts = cuda::fill_step_tables(sequences, heads_per_kv_head, limits,
                                                           cuda::StepTables::in(staged, limits));
  if (!counts) {
    fail(counts.error());
    counts_ = {};
    return;
  }
  counts_ = *counts;
  const auto used = static_cast<std::size_t>(cuda::step_table_bytes(limits) -
                                             (limits.table_entries - counts_.table_entries) *
                                                 static_cast<Bytes>(sizeof(std::int32_t)));
  runtime_->copy_in(space_.tables, staged, used);
}

void CudaBackend::attention(const AttentionCall& call) {
  require(check_attention(call, limits_));
  taken_norm_.reset();
  if (call.qkv.rows == 0) return;
  if (call.cache->type != KvType::f16) {
    fail(invalid("the CUDA backend keeps keys and values as f16, not " +
                 std::string(kv_type_name(call.cache->type)) + "; leave --kv-cache-dtype auto"));
    return;
  }
  // Layers of a step come in order and have the same sequences: their tables are copied once.
  const bool is_first = recording_ == nullptr && call.layer <= last_layer_;
  if (is_first) load_step(call.sequences, call.heads / call.cache->kv_heads);
  last_layer_ = call.layer;
  if (counts_.tiles == 0) return;
  const cuda::KvPages pages{.data = reinterpret_cast<unsigned char*>(call.cache->data),
                            .block_bytes = call.cache->block_bytes(),
                            .layer = narrow(call.layer),
                            .kv_heads = narrow(call.cache->kv_heads),
                            .head_dim = narrow(call.cache->head_dim)};
  store(call, pages);
  attend(call, pages);
}

void CudaBackend::store(const AttentionCall& call, const cuda::KvPages& pages) {
  const auto tables = cuda::StepTables::in(space_.tables, cuda::step_table_limits(limits_));
  const std::int64_t heads = call.heads + 2 * call.cache->kv_heads;
  runtime_->launch(Kernel::rope_store,
                   {.grid = {static_cast<unsigned>(ceil_div(heads, kRopeWarps)),
                             static_cast<unsigned>(call.qkv.rows)},
                    .block = {kRopeWarps * 32}},
                   cuda::RopeArguments{.qkv = call.qkv.f32(),
                                       .qkv_stride = call.qkv.stride,
                                       .bias = call.bias,
                                       .q_norm = call.q_norm.weight,
                                       .k_norm = call.k_norm.weight,
                                       .q_eps = call.q_norm.eps,
                                       .k_eps = call.k_norm.eps,
                                       .cos = call.rope.cos,
                                       .sin = call.rope.sin,
                                       .half_dim = narrow(call.rope.half_dim),
                                       .interleaved = call.rope.interleaved ? 1 : 0,
                                       .heads = narrow(call.heads),
                                       .query_scale = call.scale * std::numbers::log2e_v<float>,
                                       .positions = tables.positions,
                                       .table_begin = tables.table_begin,
                                       .tables = tables.tables,
                                       .pages = pages});
}

void CudaBackend::attend(const AttentionCall& call, const cuda::KvPages& pages) {
  const auto tables = cuda::StepTables::in(space_.tables, cuda::step_table_limits(limits_));
  const bool is_split = recording_ != nullptr
                            ? counts_.splits_max > 1
                            : cuda::splits_attention(call.qkv.rows, counts_.splits_max);
  const cuda::ChosenKernel chosen =
      cuda::choose_attention({.tiles = counts_.tiles,
                              .heads = call.heads,
                              .kv_heads = call.cache->kv_heads,
                              .head_dim = call.cache->head_dim,
                              .splits = is_split ? counts_.splits_max : 1});
  runtime_->launch(chosen.kernel, chosen.shape,
                   cuda::AttentionArguments{
                       .queries = call.qkv.f32(),
                       .query_stride = call.qkv.stride,
                       .heads = narrow(call.heads),
                       .window = narrow(call.window),
                       .tiles = tables.tiles,
                       .tables = tables.tables,
                       .pages = pages,
                       .out = call.out.f32(),
                       .out_stride = call.out.stride,
                       .partial_out = is_split ? space_.partial_out : nullptr,
                       .partial_max = space_.partial_max,
                       .partial_sum = space_.partial_sum,
                       .splits = narrow(counts_.splits_max),
                   });
  if (!is_split) return;
  runtime_->launch(
      Kernel::attention_merge,
      {.grid = {static_cast<unsigned>(call.heads), static_cast<unsigned>(call.qkv.rows)},
       .block = {128}},
      cuda::MergeArguments{.partial_out = space_.partial_out,
                           .partial_max = space_.partial_max,
                           .partial_sum = space_.partial_sum,
                           .positions = tables.positions,
                           .splits = narrow(counts_.splits_max),
                           .heads = narrow(call.heads),
                           .head_dim = narrow(call.cache->head_dim),
                           .out = call.out.f32(),
                           .out_stride = call.out.stride});
}

// What a step's inputs decide is decided here for all of them: each row is a tile, and attention
// is of one kind for all lengths that the recording serves.
Status CudaBackend::record(std::int64_t rows, const std::function<Status()>& step) {
  for (cuda::RecordedStep& variant : recorded_.add(rows, limits_.context_max)) {
    counts_ = {.tiles = rows, .table_entries = 0, .splits_max = variant.splits};
    TRY(runtime_->begin_recording());
    recording_ = &variant;
    const Status called = step();
    recording_ = nullptr;
    last_layer_ = std::numeric_limits<std::int64_t>::max();
    const Result<cuda::Recording> recording = runtime_->end_recording();
    TRY(called);
    if (!recording) return recording.error();
    variant.recording = *recording;
  }
  return {};
}

Result<cuda::RecordedStep> CudaBackend::start_replay(const DecodeInputs& inputs) {
  copy_words(inputs.ids, ids_, space_.ids);
  copy_words(inputs.logit_rows, rows_, space_.rows);
  load_step(inputs.sequences, 1);
  last_layer_ = std::numeric_limits<std::int64_t>::max();
  if (failure_) return *failure_;
  const cuda::RecordedStep& step = recorded_.find(std::ssize(inputs.ids), counts_.splits_max);
  runtime_->replay(step.recording);
  return step;
}

Result<TensorView> CudaBackend::replay(const DecodeInputs& inputs) {
  const cuda::RecordedStep step = TRY(start_replay(inputs));
  return read(step.from, step.to);
}

// What the linears' inputs were is not needed any more.
Result<RowSampling::Sampled> CudaBackend::replay_and_sample(const DecodeInputs& inputs,
                                                            std::span<const cuda::RowSample> rows) {
  const cuda::RecordedStep step = TRY(start_replay(inputs));
  CHECK(std::ssize(rows) * cuda::RowSampler::kBytesARow <=
        limits_.tokens_max * limits_.cols_max * static_cast<Bytes>(sizeof(float)));
  sampler_.sample(*runtime_, step.from, rows, reinterpret_cast<std::byte*>(space_.values));
  wait();
  if (failure_) return *failure_;
  Sampled sampled{.tokens = sampler_.tokens(), .logits = {}};
  if (std::ranges::any_of(sampled.tokens, [](std::int32_t token) { return token < 0; })) {
    sampled.logits = TRY(read(step.from, step.to));
  }
  return sampled;
}

}  // namespace

cuda::NormSink& norm_sink(Backend& backend) { return dynamic_cast<CudaBackend&>(backend); }

std::unique_ptr<Backend> make_cuda_backend(std::unique_ptr<cuda::DeviceRuntime> runtime) {
  return std::make_unique<CudaBackend>(std::move(runtime));
}

}  // namespace plimsoll
