#include "worker/collective/ipc_collective.h"

#include <atomic>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/ipc_layout.cuh"
#include "shared/base/check.h"

namespace plimsoll {
namespace {

constexpr Bytes kHalfAlignment = 256;

class IpcCollective final : public Collective {
 public:
  explicit IpcCollective(IpcCollectiveParts parts) : parts_(std::move(parts)) {}

  Status start();

  int rank() const override { return parts_.rank; }
  int size() const override { return parts_.segment.ranks(); }
  std::string_view name() const override { return parts_.norms == nullptr ? "ipc" : "fused"; }
  bool is_on_device() const override { return true; }
  bool can_be_recorded() const override { return true; }

  Status all_reduce_add(SumsView partial, TensorView accumulate) override;
  Status all_reduce_add_norm(SumsView partial, TensorView accumulate,
                             const NextLinear& next) override;
  Status gather(TensorView mine, std::span<const std::int64_t> cols_of_rank,
                TensorView all) override {
    TRY(check_calls());
    return parts_.host->gather(mine, cols_of_rank, all);
  }
  Status barrier() override {
    TRY(check_calls());
    return parts_.host->barrier();
  }
  Status await_peers(Duration patience) override { return parts_.host->await_peers(patience); }
  void abort(std::string_view reason) override { parts_.host->abort(reason); }

 private:
  // That the calls which have run have ended.
  Status check_calls();
  Status check_call(const SumsView& partial, const TensorView& accumulate) const;
  Status open_buffers();
  cuda::ReduceSize size_of(const SumsView& partial) const {
    return {.ranks = size(),
            .pairs = partial.rows * partial.cols / 2,
            .half_bytes = group_.half_bytes,
            .link = parts_.link};
  }
  Bytes half_bytes() const {
    const Bytes halves = parts_.buffer_bytes - cuda::kIpcFlagBytes - kHalfAlignment;
    return halves / 2 / kHalfAlignment * kHalfAlignment;
  }

  IpcCollectiveParts parts_;
  cuda::IpcGroup group_{};
};

Status IpcCollective::start() {
  cuda::DeviceRuntime& runtime = *parts_.runtime;
  group_.rank = rank();
  group_.ranks = size();
  group_.half_bytes = half_bytes();
  group_.deadline_ns = static_cast<std::uint64_t>(parts_.deadline / std::chrono::nanoseconds(1));
  const std::span<std::byte> state =
      TRY(runtime.allocate(static_cast<Bytes>(sizeof(cuda::IpcState)), "the collective's state"));
  group_.state = reinterpret_cast<cuda::IpcState*>(state.data());
  const std::span<std::byte> fault = TRY(runtime.allocate_host(
      static_cast<Bytes>(sizeof(std::uint64_t)), "what collectives failed by"));
  group_.fault = reinterpret_cast<std::uint64_t*>(fault.data());
  *group_.fault = 0;
  const std::span<std::byte> seen =
      TRY(runtime.show_host(parts_.segment_memory, "the ranks' segment"));
  const auto offset = reinterpret_cast<const std::byte*>(&parts_.segment.abort_word()) -
                      parts_.segment_memory.data();
  group_.abort_word = reinterpret_cast<const std::uint32_t*>(seen.data() + offset);
  return open_buffers();
}

Status IpcCollective::open_buffers() {
  cuda::DeviceRuntime& runtime = *parts_.runtime;
  auto own = TRY(runtime.allocate_shared(parts_.buffer_bytes, "the collective's buffer"));
  PeerFds handles = TRY(exchange_descriptors(parts_.sockets, rank(), own.handle.get(),
                                             parts_.segment, parts_.exchange_deadline));
  for (int peer = 0; peer < size(); ++peer) {
    const std::span<std::byte> memory =
        peer == rank()
            ? own.memory
            : TRY(runtime.open_shared(std::move(handles[static_cast<std::size_t>(peer)]),
                                      parts_.buffer_bytes,
                                      fmt::format("the collective's buffer of rank {}", peer)));
    group_.buffers[peer] = reinterpret_cast<unsigned char*>(memory.data());
  }
  parts_.sockets.clear();
  return {};
}

Status IpcCollective::check_call(const SumsView& partial, const TensorView& accumulate) const {
  CHECK(partial.rows == accumulate.rows && partial.cols == accumulate.cols);
  CHECK(partial.stride == partial.cols && accumulate.stride == accumulate.cols);
  CHECK(partial.cols % 2 == 0);
  if (!parts_.segment.aborted()) return {};
  return unavailable(fmt::format("all_reduce_add on rank {}: the replica was aborted: {}", rank(),
                                 parts_.segment.abort_reason()));
}

Status IpcCollective::all_reduce_add(SumsView partial, TensorView accumulate) {
  TRY(check_call(partial, accumulate));
  const cuda::ReduceSize size = size_of(partial);
  if (size.pairs == 0) return {};
  const cuda::ChosenReduce chosen = cuda::choose_all_reduce(size);
  for (std::int64_t begin = 0; begin < size.pairs; begin += chosen.pairs) {
    parts_.runtime->launch(
        chosen.kernel, chosen.shape,
        cuda::AllReduceArguments{.group = group_,
                                 .partial = partial.data + 2 * begin,
                                 .accumulate = accumulate.f32() + 2 * begin,
                                 .pairs = std::min(chosen.pairs, size.pairs - begin)});
  }
  return {};
}

Status IpcCollective::all_reduce_add_norm(SumsView partial, TensorView accumulate,
                                          const NextLinear& next) {
  TRY(check_call(partial, accumulate));
  const cuda::ReduceSize size = size_of(partial);
  if (size.pairs == 0) return {};
  const auto chosen = cuda::choose_all_reduce_norm(size, partial.rows);
  if (parts_.norms == nullptr || !chosen) return all_reduce_add(partial, accumulate);
  parts_.runtime->launch(chosen->kernel, chosen->shape,
                         cuda::AllReduceNormArguments{
                             .sum = {.group = group_,
                                     .partial = partial.data,
                                     .accumulate = accumulate.f32(),
                                     .pairs = size.pairs},
                             .tokens = static_cast<std::int32_t>(partial.rows),
                             .norm = parts_.norms->take_norm(accumulate, next.norm, *next.weight)});
  return {};
}

Status IpcCollective::check_calls() {
  const auto word = std::atomic_ref<std::uint64_t>(*group_.fault).load(std::memory_order_acquire);
  if (word == 0) return {};
  const cuda::IpcFault fault = cuda::IpcFault::of(word);
  if (fault.kind == cuda::IpcFault::aborted || parts_.segment.aborted()) {
    return unavailable(fmt::format("all_reduce_add {} on rank {}: the replica was aborted: {}",
                                   fault.epoch, rank(), parts_.segment.abort_reason()));
  }
  const std::string reason =
      fmt::format("all_reduce_add {} on rank {}: rank {} did not join it within {:.1f} s",
                  fault.epoch, rank(), fault.peer, to_seconds(parts_.deadline));
  parts_.segment.abort(reason);
  return timed_out(reason);
}

}  // namespace

Result<std::unique_ptr<Collective>> make_ipc_collective(IpcCollectiveParts parts) {
  const int ranks = parts.segment.ranks();
  if (ranks > cuda::kIpcRanksMax) {
    return invalid(fmt::format("the collective 'ipc' adds up over at most {} ranks, not {}",
                               cuda::kIpcRanksMax, ranks));
  }
  if (std::ssize(parts.sockets) != ranks) {
    return internal_error(fmt::format("the collective 'ipc' has {} sockets for {} ranks",
                                      parts.sockets.size(), ranks));
  }
  auto collective = std::make_unique<IpcCollective>(std::move(parts));
  TRY(collective->start());
  return std::unique_ptr<Collective>(std::move(collective));
}

}  // namespace plimsoll
