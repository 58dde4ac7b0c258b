// The part of the daemon that does what the supervisor says.

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "daemon/daemon.h"
#include "daemon/model_identity.h"
#include "daemon/planner.h"
#include "shared/base/file.h"
#include "shared/control/descriptors.h"
#include "shared/control/endpoints.h"
#include "shared/options/device_choice.h"

namespace plimsoll {

namespace {

Error no_answer(const char* what) {
  return timed_out(fmt::format(
      "{}: this machine has not said for {:.0f} s what there is: a driver whose device is broken, "
      "or a disk or file server that hangs, holds it up (`dmesg` may name it)",
      what, to_seconds(Surveyor::kLongest)));
}

}  // namespace

void Daemon::act(MakePlan&& action) {
  Planned late{.plan = no_answer("plan"), .options = action.options, .question = action.question};
  const auto find = [action = std::move(action), own = children_.pids()]() -> Event {
    Planned planned = plan_launch(action.options, own, action.without, action.found);
    planned.question = action.question;
    return planned;
  };
  surveyor_.ask({.find = find, .late = std::move(late)}, now());
}

void Daemon::act(FindDevices&& action) {
  DevicesFound late{.devices = no_answer("find a free device"), .question = action.question};
  const auto find = [action = std::move(action)]() -> Event {
    return DevicesFound{find_devices(action.options), action.question};
  };
  surveyor_.ask({.find = find, .late = std::move(late)}, now());
}

void Daemon::act(BindListener&& action) {
  events_.push_back(ListenerBound{http_.open(action.host, action.port)});
}

void Daemon::act(KeepListener&&) { http_.keep(); }

// Then nothing is served any more, and what was kept for it goes too.
void Daemon::act(CloseListener&& action) {
  http_.close({.daemon_ends = action.daemon_ends});
  if (!action.daemon_ends) weights_.drop();
}

namespace {

// A socket pair between every two ranks: of each rank, its end to each peer, in rank order.
Result<std::vector<std::vector<UniqueFd>>> connect_ranks(int ranks) {
  std::vector<std::vector<UniqueFd>> sockets(static_cast<std::size_t>(ranks));
  for (std::size_t low = 0; low < sockets.size(); ++low) {
    for (std::size_t high = low + 1; high < sockets.size(); ++high) {
      SocketPair pair = TRY(descriptor_pair());
      sockets[low].push_back(std::move(pair.parent));
      sockets[high].push_back(std::move(pair.child));
    }
  }
  return sockets;
}

}  // namespace

void Daemon::act(CreateSegment&& action) {
  segments_.erase(action.replica);
  segment_errors_.erase(action.replica);
  const ReplicaSegmentShape shape{.ranks = static_cast<int>(action.ranks),
                                  .generation = static_cast<std::uint64_t>(action.incarnation)};
  const auto create = [&]() -> Result<Segment> {
    SharedBlock block = TRY(SharedBlock::create(fmt::format("plimsoll-replica-{}", action.replica),
                                                replica_segment_bytes(shape)));
    const ReplicaSegment view = TRY(init_replica_segment(block.bytes(), shape));
    return Segment{.block = std::move(block),
                   .view = view,
                   .incarnation = action.incarnation,
                   .sockets = TRY(connect_ranks(action.connects_ranks ? shape.ranks : 0))};
  };
  Result<Segment> segment = create();
  if (segment) {
    segments_.emplace(action.replica, std::move(*segment));
  } else {
    segment_errors_.emplace(action.replica, "shared memory of its replica: " + segment.error());
  }
}

void Daemon::act(AbortSegment&& action) {
  const auto found = segments_.find(action.replica);
  if (found != segments_.end()) found->second.view.abort(action.reason);
}

void Daemon::act(DropSegment&& action) {
  segments_.erase(action.replica);
  constexpr std::string_view kIpc = "ipc://";
  const std::string endpoint =
      request_endpoint(parts_.setup.runtime, action.replica, action.incarnation);
  std::error_code ignored;  // a leader that left in order has removed it itself
  std::filesystem::remove(endpoint.substr(kIpc.size()), ignored);
}

// A cleaner of temporary files may have removed it, or a logout the folder of a user's session.
Status Daemon::check_control_socket() const {
  constexpr std::string_view kIpc = "ipc://";
  std::error_code failed;
  const std::string path = parts_.control_endpoint.substr(kIpc.size());
  // Where it can't be seen, a worker may reach it for all that.
  if (std::filesystem::exists(path, failed) || failed) return {};
  return unavailable(fmt::format(
      "its process could never reach plimsolld, whose socket {} was removed by somebody: end "
      "plimsolld (pid {}) with SIGTERM and start it again, with a --runtime-dir that stays",
      path, parts_.setup.pid));
}

Result<std::int64_t> Daemon::spawn(const ChildId& child) {
  TRY(check_control_socket());
  ChildTable::Start start{.child = child,
                          .folder = parts_.programs,
                          .control_endpoint = parts_.control_endpoint,
                          .instance = parts_.setup.instance,
                          .descriptors = {}};
  if (child.kind == ChildId::Kind::router) {
    // It reads the tokenizer, which is to be that of the weights.
    const LaunchPlan& plan = supervisor_.deployment()->plan();
    TRY(check_model_identity(plan.options.values.model, plan.model_identity));
    start.descriptors.push_back({"listener", http_.fd()});
    return children_.start(start);
  }
  const auto failed = segment_errors_.find(child.replica);
  if (failed != segment_errors_.end()) return failed->second;
  // During a change replicas of two plans live.
  const Cohort* cohort = supervisor_.deployment()->find_cohort(child.replica);
  if (cohort != nullptr) {
    const LaunchPlan& plan = cohort->plan();
    TRY(check_model_identity(plan.options.values.model, plan.model_identity));
    const std::string device = cohort->device_of(child.rank);
    if (!device.starts_with(kSimulatedName)) devices_.watch(device);
  }
  const int weights =
      cohort == nullptr ? -1 : weights_.block_of(cohort->plan(), cohort->index(), child.rank);
  if (weights >= 0) start.descriptors.push_back({"weights", weights});
  const Segment& segment = segments_.at(child.replica);
  if (!segment.sockets.empty()) {
    for (const UniqueFd& socket : segment.sockets.at(static_cast<std::size_t>(child.rank))) {
      start.descriptors.push_back({"peer", socket.get()});
    }
  }
  start.descriptors.push_back({"segment", segment.block.fd()});
  return children_.start(start);
}

void Daemon::act(Spawn&& action) {
  const Result<std::int64_t> pid = spawn(action.child);
  if (pid) {
    events_.push_back(ChildStarted{action.child, *pid});
  } else {
    events_.push_back(SpawnFailed{action.child, pid.error()});
  }
}

void Daemon::act(Kill&& action) { children_.signal(action.child, action.signal); }

void Daemon::act(LookAtProcess&& action) {
  const std::optional<std::int64_t> pid = children_.pid_of(action.child);
  if (pid) events_.push_back(ProcessSeen{action.child, process_state(*pid)});
}

void Daemon::act(Abandon&& action) { children_.abandon(action.child); }

void Daemon::act(Send&& action) {
  const Status sent = parts_.channel.send(action.peer, action.message);
  // A child that is gone is noticed by its pidfd, a CLI that is gone needs no answer.
  if (!sent) log(LogLevel::debug, "control: " + sent.error().message);
}

void Daemon::act(Notify&& action) { service_.send(action); }

void Daemon::act(Log&& action) { log(action.level, action.line); }

void Daemon::act(ApplyLogLevel&& action) {
  for (const auto& [name, level] :
       {std::pair("debug", LogLevel::debug), std::pair("info", LogLevel::info),
        std::pair("warning", LogLevel::warning), std::pair("error", LogLevel::error)}) {
    if (action.level == name) log_level(level);
  }
}

void Daemon::act(SaveState&&) { is_dirty_ = true; }

void Daemon::act(WriteRecord&& action) { journal_said(parts_.journal.write(action.record)); }

void Daemon::act(KeepCommitted&& action) { journal_said(parts_.journal.commit(action.committed)); }

// A full disk is said once, and once that it is over; serving goes on.
void Daemon::journal_said(const Status& status) {
  if (!status && !is_journal_bad_) {
    log(LogLevel::warning, "the record of this generation is not kept: " + status.error().message);
  } else if (status && is_journal_bad_) {
    log(LogLevel::info, "records of generations are kept again");
  }
  is_journal_bad_ = !status;
}

void Daemon::act(Exit&& action) { exit_code_ = action.code; }

}  // namespace plimsoll
