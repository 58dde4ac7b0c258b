#include "worker/collective/nccl_collective.h"

#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/launches.h"
#include "shared/base/check.h"
#include "shared/base/shared_block.h"
#include "worker/collective/nccl_api.h"
#include "worker/collective/tunable.h"

namespace plimsoll {
namespace {

// How often an operation that goes on is looked at, and the segment's abort word.
constexpr Duration kPollEvery = milliseconds(1);
constexpr Duration kWatchEvery = milliseconds(50);
constexpr std::array<std::string_view, 1> kAlgorithms = {"as it chooses"};

class NcclCollective final : public Collective, public Tunable {
 public:
  NcclCollective(NcclCollectiveParts parts, NcclLibrary library)
      : parts_(std::move(parts)), library_(std::move(library)) {}
  NcclCollective(const NcclCollective&) = delete;
  NcclCollective& operator=(const NcclCollective&) = delete;
  ~NcclCollective() override;

  Status start();

  int rank() const override { return parts_.rank; }
  int size() const override { return parts_.segment.ranks(); }
  std::string_view name() const override { return "nccl"; }
  bool is_on_device() const override { return true; }

  Status all_reduce_add(SumsView partial, TensorView accumulate) override;
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

  // A test finds whether it adds up, and how fast.
  Tunable* tunable() override { return this; }
  std::string_view backend() const override { return name(); }
  std::span<const std::string_view> algorithms() const override { return kAlgorithms; }
  bool is_exact() const override { return false; }
  void use(const BackendTable&) override {}
  Collective* host() override { return parts_.host.get(); }
  Result<bool> has_late_calls() override {
    TRY(check_calls());
    return false;
  }

 private:
  Result<NcclUniqueId> share_id();
  // Of a call on the communicator: until NCCL has taken it.
  Status finish(NcclResult result, const std::string& attempted);
  // That the calls which have run were not ended by an abort.
  Status check_calls();
  void watch();
  void abort_communicator();
  Error aborted(const std::string& attempted) const {
    return unavailable(fmt::format("{} on rank {}: the replica was aborted: {}", attempted, rank(),
                                   parts_.segment.abort_reason()));
  }

  NcclCollectiveParts parts_;
  NcclLibrary library_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex:
  NcclComm comm_ = nullptr;
  bool is_aborted_ = false;  // the communicator is, or is being: nobody else may use it
  bool ends_ = false;
  std::thread watcher_;
};

NcclCollective::~NcclCollective() {
  // First: NCCL's abort, here or in the watcher, waits until no graph has its kernels.
  parts_.runtime->drop_recordings();
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  // Whatever the peers do: this is the only way that cannot wait for them.
  abort_communicator();
}

void NcclCollective::abort_communicator() {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr && !is_aborted_) (void)library_.api().abort(comm_);
  is_aborted_ = true;
}

// Rank 0's, in a block that it shares.
Result<NcclUniqueId> NcclCollective::share_id() {
  constexpr const char* kWhat = "nccl id";
  NcclUniqueId id{};
  if (rank() == 0) {
    const NcclResult made = library_.api().unique_id(&id);
    if (made != kNcclSuccess) return library_.error(made, "make NCCL's id", nullptr);
    const SharedBlock own = TRY(SharedBlock::create(kWhat, static_cast<Bytes>(sizeof id)));
    std::memcpy(own.bytes().data(), &id, sizeof id);
    TRY(give_descriptor(parts_.sockets, 0, own.fd(), kWhat));
  } else {
    UniqueFd received =
        TRY(take_descriptor(parts_.sockets, 0, kWhat, parts_.segment, parts_.exchange_deadline));
    const SharedBlock block =
        TRY(SharedBlock::map(std::move(received), static_cast<Bytes>(sizeof id)));
    std::memcpy(&id, block.bytes().data(), sizeof id);
  }
  parts_.sockets.clear();
  return id;
}

Status NcclCollective::start() {
  const NcclUniqueId id = TRY(share_id());
  NcclSettings settings;
  settings.min_ctas = 1;
  settings.max_ctas = parts_.channels;
  const NcclResult begun = library_.api().init(&comm_, size(), id, rank(), &settings);
  TRY(finish(begun, fmt::format("start NCCL {} over {} ranks", library_.version(), size())));
  watcher_ = std::thread([this] { watch(); });
  return {};
}

Status NcclCollective::finish(NcclResult result, const std::string& attempted) {
  const TimePoint until = now() + parts_.deadline;
  std::unique_lock lock(mutex_);
  while (!is_aborted_) {
    if (result != kNcclSuccess && result != kNcclInProgress) {
      return library_.error(result, attempted, comm_);
    }
    if (result == kNcclSuccess) {
      // What the call itself returned says less than what became of it.
      if (const NcclResult asked = library_.api().async_error(comm_, &result);
          asked != kNcclSuccess) {
        return library_.error(asked, attempted, comm_);
      }
      if (result == kNcclSuccess) return {};
      continue;
    }
    if (parts_.segment.aborted()) break;
    if (now() >= until) {
      const std::string reason = fmt::format("{} on rank {}: not all ranks joined within {:.1f} s",
                                             attempted, rank(), to_seconds(parts_.deadline));
      parts_.segment.abort(reason);
      return timed_out(reason);
    }
    changed_.wait_for(lock, kPollEvery);
    if (is_aborted_) break;  // just then, and freed
    if (const NcclResult asked = library_.api().async_error(comm_, &result);
        asked != kNcclSuccess) {
      return library_.error(asked, attempted, comm_);
    }
    if (result == kNcclSuccess) return {};
  }
  return aborted(attempted);
}

Status NcclCollective::all_reduce_add(SumsView partial, TensorView accumulate) {
  CHECK(partial.rows == accumulate.rows && partial.cols == accumulate.cols);
  CHECK(partial.stride == partial.cols && accumulate.stride == accumulate.cols);
  const std::int64_t count = partial.rows * partial.cols;
  if (count == 0) return {};
  NcclResult begun = kNcclSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (is_aborted_ || parts_.segment.aborted()) return aborted("all_reduce_add");
    begun =
        library_.api().all_reduce(partial.data, partial.data, static_cast<std::size_t>(count),
                                  kNcclFloat64, kNcclSum, comm_, parts_.runtime->native_stream());
  }
  TRY(finish(begun, fmt::format("add up {} sums by NCCL", count)));
  const cuda::AddSumsArguments arguments{
      .sums = partial.data, .accumulate = accumulate.f32(), .count = count};
  parts_.runtime->launch(cuda::Kernel::add_sums, cuda::add_sums_shape(count), arguments);
  return {};
}

Status NcclCollective::check_calls() {
  const std::lock_guard lock(mutex_);
  if (is_aborted_ || parts_.segment.aborted()) return aborted("all_reduce_add");
  // Replays ask nobody else.
  NcclResult found = kNcclSuccess;
  const NcclResult asked = library_.api().async_error(comm_, &found);
  if (asked != kNcclSuccess) found = asked;
  if (found == kNcclSuccess || found == kNcclInProgress) return {};
  const Error error = library_.error(found, "all_reduce_add", comm_);
  parts_.segment.abort(error.message);
  return error;
}

// The step thread may wait for the device all the while, in calls of NCCL that a peer never joins.
void NcclCollective::watch() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    changed_.wait_for(lock, kWatchEvery);
    if (is_aborted_) return;
    if (!parts_.segment.aborted()) continue;
    is_aborted_ =
        true;  // first, and without the mutex: calls fail meanwhile, however long it takes
    const NcclComm comm = comm_;
    lock.unlock();
    (void)library_.api().abort(comm);
    return;
  }
}

}  // namespace

Result<std::unique_ptr<Collective>> make_nccl_collective(NcclCollectiveParts parts) {
  if (parts.runtime->native_stream() == nullptr) {
    return invalid("the collective 'nccl' needs GPUs; the host executor has none");
  }
  if (std::ssize(parts.sockets) != parts.segment.ranks()) {
    return internal_error(fmt::format("the collective 'nccl' has {} sockets for {} ranks",
                                      parts.sockets.size(), parts.segment.ranks()));
  }
  NcclLibrary library = TRY(NcclLibrary::open(parts.library));
  auto collective = std::make_unique<NcclCollective>(std::move(parts), std::move(library));
  TRY(collective->start());
  return std::unique_ptr<Collective>(std::move(collective));
}

}  // namespace plimsoll
