// Events: what may happen to a deployment, and the actions that the supervisor answers with.
//
// Plain data on both sides: the supervisor decides on events and never acts; the daemon acts and
// never decides.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/launch_plan.h"
#include "daemon/process_state.h"
#include "daemon/quarantine.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/replica_segment.h"
#include "shared/base/result.h"
#include "shared/control/channel.h"
#include "shared/generation/generation_record.h"
#include "shared/machine/device_health.h"

namespace plimsoll {

struct ChildId {
  enum class Kind { worker, router };
  Kind kind = Kind::worker;
  std::int64_t replica = 0;
  std::int64_t rank = 0;
  std::int64_t incarnation = 0;  // never reused in the life of a daemon
  auto operator<=>(const ChildId&) const = default;
};
std::string child_name(const ChildId& child);  // "worker 0.1", "router"

// How a process ended.
struct Ending {
  bool by_signal = false;
  int code = 0;        // the signal's number, or the exit code
  RankMark mark = {};  // of a worker: where it was
  // Of a SIGKILL: whether the kernel has just ended a process for want of memory, where it counts.
  std::optional<bool> by_oom = {};
};

// ---- events ----

struct Begin {};  // once, first
// Why a plan does not fit that would if other processes gave their memory back.
struct HeldMemory {
  Bytes available = 0;               // now, over all that ranks run on
  std::vector<std::string> holders;  // a line each
};
// The answer to MakePlan. A plan that does not fit has a refusal.
struct Planned {
  Result<LaunchPlan> plan;
  OptionSet options = {};  // that it is of
  std::optional<HeldMemory> held = {};
  std::int64_t question = 0;  // which it answers
};
// The answer to BindListener.
struct ListenerBound {
  Result<std::string> url;
};
struct ChildStarted {
  ChildId child;
  std::int64_t pid = 0;
};
struct SpawnFailed {
  ChildId child;
  Error error;
};
struct ChildExited {
  ChildId child;
  Ending ending;
};
// A worker is dead; its ChildExited follows when the kernel is done with it.
struct ChildDying {
  ChildId child;
};
// The driver says that a device has failed.
struct DeviceFaulted {
  DeviceFault fault;
};
// The answer to FindDevices: those that the options choose, in order.
struct DevicesFound {
  Result<std::vector<Device>> devices;
  std::int64_t question = 0;
};
// The answer to LookAtProcess.
struct ProcessSeen {
  ChildId child;
  ProcessState state;
};
struct StopSignal {};
// The time of next_deadline() has come; with where each rank is now.
struct ReplicaMarks {
  std::int64_t replica = 0;
  std::int64_t incarnation = 0;
  std::vector<RankMark> ranks;
};
struct Tick {
  std::vector<ReplicaMarks> replicas;
};

using Event =
    std::variant<Begin, Planned, ListenerBound, ChildStarted, SpawnFailed, ChildExited, ChildDying,
                 DeviceFaulted, DevicesFound, ProcessSeen, Received, StopSignal, Tick>;

// ---- actions ----

// What a rank has found on its device, by its place in the plan's machine.
struct DeviceFound {
  std::int64_t device = 0;
  Bytes context = 0;
  Bytes free = 0;  // with that context up
};

// These two ask the machine, which may take long: meanwhile anything else may happen. A question's
// number is never used again, and an answer to one that nobody waits for any more is dropped.
struct MakePlan {
  OptionSet options;
  Quarantine without = {};  // these devices
  std::int64_t question = 0;
  std::vector<DeviceFound> found = {};  // goes before what the driver says
};
struct FindDevices {
  OptionSet options;
  std::int64_t question = 0;
};
struct BindListener {
  std::string host;
  std::int64_t port = 0;
};
// The one that BindListener took the place of is not needed any more.
struct KeepListener {};
struct CloseListener {
  bool daemon_ends = false;  // then those who connect may wait for its next life
};
// Made before the workers of an incarnation start, which get its descriptor.
struct CreateSegment {
  std::int64_t replica = 0;
  std::int64_t incarnation = 0;
  std::int64_t ranks = 0;
  bool connects_ranks = false;  // with a socket between every two, as their number squared
};
struct AbortSegment {
  std::int64_t replica = 0;
  std::string reason;
};
// No process uses it any more; the leader's socket file goes with it.
struct DropSegment {
  std::int64_t replica = 0;
  std::int64_t incarnation = 0;
};
struct Spawn {
  ChildId child;
};
struct Kill {
  ChildId child;
  int signal = 0;
};
// What it does that does not end although it was killed.
struct LookAtProcess {
  ChildId child;
};
// Nobody waits for its end any more.
struct Abandon {
  ChildId child;
};
struct Send {
  std::string peer;
  Message message;
};
struct Notify {
  bool is_ready = false;
  bool is_stopping = false;
  std::string status;
  Duration extend{0};  // of the service manager's start or stop deadline
};
struct Log {
  LogLevel level = LogLevel::info;
  std::string line;
};
struct ApplyLogLevel {
  std::string level;
};
struct SaveState {};  // the status as it is now, for when no daemon can be asked
// The record of a generation, as it is now.
struct WriteRecord {
  GenerationRecord record;
};
// What the next start of a daemon runs; nothing: what it is given then.
struct KeepCommitted {
  std::optional<Committed> committed;
};
struct Exit {
  int code = 0;
};

using Action =
    std::variant<MakePlan, FindDevices, BindListener, KeepListener, CloseListener, CreateSegment,
                 AbortSegment, DropSegment, Spawn, Kill, LookAtProcess, Abandon, Send, Notify, Log,
                 ApplyLogLevel, SaveState, WriteRecord, KeepCommitted, Exit>;
using Actions = std::vector<Action>;

}  // namespace plimsoll
