#include "worker/collective/ipc_collective.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/ipc_layout.cuh"
#include "shared/base/check.h"
#include "worker/collective/tunable.h"

namespace plimsoll {
namespace {

constexpr Bytes kHalfAlignment = 256;
constexpr std::array<std::string_view, 3> kAlgorithms = {"one-shot", "two-shot", "staged"};
constexpr std::array<cuda::ReduceKind, 3> kKinds = {
    cuda::ReduceKind::one_shot, cuda::ReduceKind::two_shot, cuda::ReduceKind::staged};
// More than the calls of a test.
constexpr unsigned kEpochBits = 20;

class IpcCollective final : public Collective, public Tunable {
 public:
  explicit IpcCollective(IpcCollectiveParts parts) : parts_(std::move(parts)) {}

  Status start();

  int rank() const override { return parts_.rank; }
  int size() const override { return parts_.segment.ranks(); }
  std::string_view name() const override { return parts_.norms == nullptr ? "ipc" : "fused"; }
  bool is_on_device() const override { return true; }

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

  Tunable* tunable() override { return this; }
  std::string_view backend() const override { return name(); }
  std::span<const std::string_view> algorithms() const override { return kAlgorithms; }
  void use(const BackendTable& table) override;
  Collective* host() override { return parts_.host.get(); }
  void limit_calls(std::optional<Duration> patience) override {
    group_.deadline_ns = static_cast<std::uint64_t>(patience.value_or(parts_.deadline) /
                                                    std::chrono::nanoseconds(1));
  }
  Result<bool> has_late_calls() override;
  Status forget_late_calls() override;

 private:
  Status agree_on_link();
  cuda::IpcFault fault() const {
    return cuda::IpcFault::of(
        std::atomic_ref<std::uint64_t>(*group_.fault).load(std::memory_order_acquire));
  }
  Error aborted(const cuda::IpcFault& fault) const {
    return unavailable(fmt::format("all_reduce_add {} on rank {}: the replica was aborted: {}",
                                   fault.epoch, rank(), parts_.segment.abort_reason()));
  }
  cuda::ReduceKind kind_for(const cuda::ReduceSize& size) const;
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
  // Of the table: up to how many bytes a message goes which way. None: as published.
  struct Way {
    Bytes up_to;
    cuda::ReduceKind kind;
  };
  std::vector<Way> ways_;
  std::uint64_t times_forgotten_ = 0;
};

Status IpcCollective::start() {
  cuda::DeviceRuntime& runtime = *parts_.runtime;
  group_.rank = rank();
  group_.ranks = size();
  group_.half_bytes = half_bytes();
  limit_calls(std::nullopt);
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
  TRY(open_buffers());
  return agree_on_link();
}

// Kernels and their grids are chosen by it, and have to be the same on all ranks.
Status IpcCollective::agree_on_link() {
  double is_pcie = parts_.link == cuda::PeerLink::pcie ? 1 : 0;
  float ranks_of_pcie = 0;
  TRY(parts_.host->all_reduce_add(sums_view(&is_pcie, 1, 1), f32_view(&ranks_of_pcie, 1, 1)));
  if (ranks_of_pcie > 0) parts_.link = cuda::PeerLink::pcie;
  return {};
}

void IpcCollective::use(const BackendTable& table) {
  CHECK(!table.rows.empty());
  ways_.clear();
  for (const TableRow& row : table.rows) {
    const auto found = std::ranges::find(kAlgorithms, row.algorithm);
    CHECK(found != kAlgorithms.end());
    ways_.push_back({row.up_to, kKinds[static_cast<std::size_t>(found - kAlgorithms.begin())]});
  }
}

cuda::ReduceKind IpcCollective::kind_for(const cuda::ReduceSize& size) const {
  if (ways_.empty()) return cuda::published_kind(size);
  const Bytes bytes = size.pairs * static_cast<Bytes>(sizeof(cuda::Pair));
  const auto way = std::ranges::find_if(ways_, [&](const Way& one) { return bytes <= one.up_to; });
  return way == ways_.end() ? ways_.back().kind : way->kind;
}

Result<bool> IpcCollective::has_late_calls() {
  const cuda::IpcFault found = fault();
  if (found.kind == cuda::IpcFault::aborted || parts_.segment.aborted()) return aborted(found);
  return found.kind == cuda::IpcFault::late;
}

// Flags of calls that some ranks joined and others did not lie in the buffers; epochs beyond them
// make them those of long ago.
Status IpcCollective::forget_late_calls() {
  TRY(parts_.host->barrier());
  std::atomic_ref<std::uint64_t>(*group_.fault).store(0);
  const cuda::IpcState fresh{
      .epoch = ++times_forgotten_ << kEpochBits, .arrived = 0, .has_failed = 0};
  parts_.runtime->copy_in(group_.state, &fresh, sizeof fresh);
  TRY(parts_.runtime->synchronize());
  return parts_.host->barrier();
}

Status IpcCollective::open_buffers() {
  cuda::DeviceRuntime& runtime = *parts_.runtime;
  auto own = TRY(runtime.allocate_shared(parts_.buffer_bytes, "the collective's buffer"));
  PeerFds handles = TRY(exchange_descriptors(parts_.sockets, rank(), own.handle.get(), "buffer",
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
  const cuda::ChosenReduce chosen = cuda::choose_all_reduce(size, kind_for(size));
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
  const auto chosen = cuda::choose_all_reduce_norm(size, kind_for(size), partial.rows);
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
  const cuda::IpcFault found = fault();
  if (found.kind == cuda::IpcFault::none) return {};
  if (found.kind == cuda::IpcFault::aborted || parts_.segment.aborted()) return aborted(found);
  const std::string reason =
      fmt::format("all_reduce_add {} on rank {}: rank {} did not join it within {:.1f} s",
                  found.epoch, rank(), found.peer, to_seconds(parts_.deadline));
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
