// The part of the cohort that knows of devices that have failed, and of processes that do not end.

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "daemon/cohort.h"
#include "daemon/quarantine.h"
#include "shared/options/device_choice.h"

namespace plimsoll {
namespace {

std::string lost_words(const DeviceFault& fault) {
  return fmt::format("has lost its device {}: {}", fault.uuid, fault.what);
}

// Whether it waits there for a file: a disk or a server that hangs is no device's fault.
bool is_of_files(std::string_view function) {
  static constexpr std::array<std::string_view, 18> kBeginnings = {
      "folio_",       "filemap_",
      "wait_on_page", "wait_on_buffer",
      "io_schedule",  "bit_wait_io",
      "blk_",         "nfs",
      "rpc_",         "netfs_",
      "cifs_",        "ceph_",
      "fuse_",        "request_wait_answer",
      "jbd2_",        "xfs_",
      "ext4_",        "btrfs_"};
  function.remove_prefix(std::min(function.find_first_not_of('_'), function.size()));
  return std::ranges::any_of(
      kBeginnings, [&](std::string_view beginning) { return function.starts_with(beginning); });
}

}  // namespace

std::string Cohort::device_of(std::int64_t rank) const {
  const auto at = static_cast<std::size_t>(index() * plan().tp + rank);
  return at < plan().memory.ranks.size() ? plan().memory.ranks[at].device_uuid : "";
}

bool Cohort::has_cuda_kernels() const {
  const std::string device = device_of(0);
  if (!device.empty()) return !device.starts_with(kSimulatedName);
  const Result<DeviceChoice> choice = parse_device_choice(options().devices);
  return choice && choice->kind == DeviceKind::cuda_host;
}

// No process of it is left; of what it died, if of anything, has been said.
void Cohort::rest_lost(std::int64_t rank, const std::string& what) {
  last_cause_ = RootCause{.rank = rank,
                          .code = Code::unavailable,
                          .is_device = true,
                          .message = fmt::format("rank {} {}", rank, what)};
  has_new_cause_ = true;
  state_ = CohortState::failed;
}

void Cohort::refuse_device(const DeviceFault& fault) {
  for (std::int64_t rank = 0; rank < plan().tp; ++rank) {
    if (device_of(rank) == fault.uuid) return rest_lost(rank, lost_words(fault));
  }
}

void Cohort::device_faulted(const DeviceFault& fault, TimePoint now, Actions& out) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const auto rank = static_cast<std::int64_t>(i);
    Worker& worker = workers_[i];
    const bool is_meant = device_of(rank) == fault.uuid && !worker.words.has_lost_device;
    if (!is_meant || state_ == CohortState::idle || has_lost_device()) continue;
    const std::string what = lost_words(fault);
    if (state_ == CohortState::waiting || state_ == CohortState::failed) {
      return rest_lost(rank, what);
    }
    worker.words.has_lost_device = true;
    if (state_ != CohortState::dying) return condemn(rank, unavailable(what), now, out);
    worker.words.verdict = unavailable(what);
    if (worker.words.first_sign == TimePoint()) worker.words.first_sign = now;
  }
}

// Those that live on for long after SIGKILL are looked at, now and then.
void Cohort::look_at_stuck(TimePoint now, Actions& out) {
  if (killed_at_ == TimePoint()) {
    killed_at_ = now;
    looked_at_ = now;
  }
  if (now - looked_at_ < kStuckTime) return;
  looked_at_ = now;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (!workers_[rank].is_alive) continue;
    out.emplace_back(LookAtProcess{child(static_cast<std::int64_t>(rank))});
  }
}

// One that runs, or waits for what may come, is only slow: much memory takes long to be given back.
StuckVerdict Cohort::process_seen(std::int64_t rank, const ProcessState& seen, TimePoint now,
                                  Actions& out) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  if (!worker.is_alive || killed_at_ == TimePoint()) return StuckVerdict::wait;
  const bool is_stuck = seen.letter == 'D';
  const bool has_files = is_of_files(seen.wait_channel);
  const std::string device = device_of(rank);
  const std::optional<std::string> before = std::exchange(worker.stuck_in, std::nullopt);
  if (is_stuck) worker.stuck_in = seen.wait_channel;
  const bool may_be_device = is_stuck && !device.empty() && !has_files;
  if (may_be_device && !before) {
    looked_at_ = now - kStuckTime + kSecondLookTime;
    return StuckVerdict::wait;
  }
  StuckVerdict verdict = StuckVerdict::wait;
  if (is_stuck && is_ended_) verdict = StuckVerdict::give_up;
  if (may_be_device && before == worker.stuck_in) verdict = StuckVerdict::blame_device;
  if (is_stuck_said_ && verdict == StuckVerdict::wait) return verdict;
  is_stuck_said_ = true;
  std::string how = fmt::format(" (its state is {})", seen.letter);
  if (is_stuck) {
    how = fmt::format(": it is stuck in the kernel{}, {}",
                      seen.wait_channel.empty() ? "" : " (in " + seen.wait_channel + ")",
                      has_files ? "where it waits for a file" : "as a rule in a driver");
  }
  std::string next = is_ended_ ? "it is waited for" : "the replica starts again when it has ended";
  if (verdict == StuckVerdict::give_up) next = "it is left behind";
  if (verdict == StuckVerdict::blame_device) {
    next = fmt::format("its device ({}) needs reset", device);
  }
  out.emplace_back(Log{
      LogLevel::error,
      fmt::format("replica {}: rank {} (pid {}) has not ended {:.0f} s after it was killed{}; {}",
                  setup_.replica, rank, worker.pid, to_seconds(now - killed_at_), how, next)});
  return verdict;
}

void Cohort::abandon(std::int64_t rank, TimePoint now, Actions& out) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  if (!worker.is_alive) return;
  worker.is_alive = false;
  worker.state = WorkerState::gone;
  worker.words.was_killed = true;
  if (worker.words.first_sign == TimePoint()) worker.words.first_sign = now;
  out.emplace_back(Abandon{child(rank)});
  settle(now, out);
}

}  // namespace plimsoll
