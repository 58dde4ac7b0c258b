// Cohort: the workers of one replica, which start, work and end together. Pure.
//
// One death ends all of them: a collective cannot be rejoined. Their shared segment is aborted at
// once, so that peers leave by themselves; those that don't are killed, and when the last one is
// reaped, the root cause is known and the restart policy says when to start again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/events.h"
#include "daemon/restart_policy.h"
#include "daemon/root_cause.h"
#include "shared/memory/measured.h"

namespace plimsoll {

enum class CohortState {
  idle,      // no process and none wanted
  waiting,   // dead; started again at a given time
  loading,   // from spawn to the last Loaded
  warming,   // from Commit to the last Ready
  ready,     // serves
  draining,  // asked to end
  dying,     // one has died, the others go
  failed,    // dead, and not started again
};
const char* cohort_state_name(CohortState state);

// What is done about a rank that has not ended although it was killed.
enum class StuckVerdict {
  wait,
  give_up,       // nobody waits for its end any more
  blame_device,  // nor is its device used any more
};

enum class WorkerState { gone, hello, planned, loading, ready, draining };
const char* worker_state_name(WorkerState state);

struct Worker {
  WorkerState state = WorkerState::gone;
  bool is_alive = false;
  std::int64_t pid = 0;
  std::string peer;    // on the control channel, after Hello
  std::string device;  // as it said itself
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;
  std::optional<Opened> opened;      // of a rank on a device whose Load was tentative
  std::optional<Measured> measured;  // after Loaded, and once more when it is ready
  Json collectives = {};             // table that it goes by, after Ready; null: it is alone
  Blocks kv_blocks_touched = 0;
  bool is_loaded = false;
  bool waits_for_peers = false;              // it has loaded all, and some of them have not
  bool is_dying = false;                     // by itself; the kernel is not done with it
  std::optional<std::string> stuck_in = {};  // the kernel's function, when it was looked at last
  TimePoint last_sign;                       // of progress while loading, of life while ready
  LastWords words;
};

// Of the leader, from its answers to pings.
struct LeaderFigures {
  Pong last;
  double tokens_per_second = 0;
  double steps_per_second = 0;
  TimePoint window_at;  // of the rates' measurement
  std::int64_t window_tokens = 0;
  std::int64_t window_steps = 0;
  TimePoint step_at;  // when it last had nothing to do or had finished another step
};

class Cohort {
 public:
  struct Setup {
    const LaunchPlan* plan;    // outlives the cohort
    std::int64_t replica = 0;  // of all replicas that live
    std::int64_t index = 0;    // of its plan's replicas
    std::string runtime;       // folder of the sockets
    std::uint64_t seed = 0;
    int starts_max = 1;
  };
  explicit Cohort(const Setup& setup);

  // `incarnation` of this start, never used before.
  void start(std::int64_t incarnation, TimePoint now, Actions& out);
  void child_started(std::int64_t rank, std::int64_t pid, TimePoint now);
  void spawn_failed(std::int64_t rank, const Error& error, TimePoint now, Actions& out);
  // Known before its end is, which child_exited() tells.
  void child_dying(std::int64_t rank, TimePoint now, Actions& out);
  void child_exited(std::int64_t rank, const Ending& ending, TimePoint now, Actions& out);
  void hello(const std::string& peer, const Hello& hello, TimePoint now, Actions& out);
  // Ranks that say hello wait for their Load, until released.
  void hold() { holds_ = true; }
  // Or get one that is tentative, and the other one when released.
  void hold_opened() { holds_opened_ = true; }
  bool all_opened() const;
  void release(TimePoint now, Actions& out);
  void said(std::int64_t rank, const Message& message, TimePoint now, Actions& out);
  // Where each rank is now.
  void note_marks(std::vector<RankMark> marks) { marks_ = std::move(marks); }
  void tick(TimePoint now, Actions& out);

  // All ranks have loaded and wait to be told how much KV they have.
  bool awaits_commit() const;
  void commit(Blocks kv_blocks, Tokens context_length, TimePoint now, Actions& out);
  // Or that they can't have what they need.
  void refuse(const Error& error, TimePoint now, Actions& out);
  // What one of its ranks runs on, or would, has failed: it is not started there again.
  void device_faulted(const DeviceFault& fault, TimePoint now, Actions& out);
  // It is not even started, on such a device.
  void refuse_device(const DeviceFault& fault);
  // What it has measured between its devices; it gets others.
  void forget_collectives() { collectives_ = {}; }
  bool has_lost_device() const { return state_ == CohortState::failed && last_cause_->is_device; }
  std::string device_of(std::int64_t rank) const;  // its UUID; empty: the CPU
  // A rank that does not end although it was killed.
  StuckVerdict process_seen(std::int64_t rank, const ProcessState& seen, TimePoint now,
                            Actions& out);
  // Then nobody waits for its end any more.
  void abandon(std::int64_t rank, TimePoint now, Actions& out);
  // This start has answered a test request.
  void prove() { is_proved_ = true; }

  // Finish what runs, then leave; an error only if it never happens (the caller has the deadline).
  void drain(milliseconds deadline, TimePoint now, Actions& out);
  // Ends it for good: no restart.
  void end(int signal, TimePoint now, Actions& out);
  void send_all(const Message& message, Actions& out) const;

  CohortState state() const { return state_; }
  std::int64_t replica() const { return setup_.replica; }
  std::int64_t index() const { return setup_.index; }
  const LaunchPlan& plan() const { return *setup_.plan; }
  std::int64_t incarnation() const { return incarnation_; }
  // The last incarnation that has ended, and whether by a fault of its own (see RootCause).
  std::int64_t ended_incarnation() const { return ended_incarnation_; }
  bool ended_by_fault() const { return ended_by_fault_; }
  std::int64_t restarts() const { return starts_ > 0 ? starts_ - 1 : 0; }
  Duration started_in() const { return started_in_; }  // from the spawn to the last Ready; 0: never
  bool has_processes() const;
  bool is_proved() const { return is_proved_; }
  const std::vector<Worker>& workers() const { return workers_; }
  Blocks kv_blocks() const { return kv_blocks_; }  // committed in this incarnation, else 0
  const LeaderFigures& figures() const { return figures_; }
  const std::string& endpoint() const { return endpoint_; }  // of the leader's requests
  const std::optional<RootCause>& last_cause() const { return last_cause_; }
  std::optional<RootCause> take_cause();  // each one once
  TimePoint retry_at() const { return retry_at_; }
  std::optional<TimePoint> next_deadline() const;

 private:
  // Peers of a dead rank leave their collectives by themselves within milliseconds; their last
  // words are worth that long. Whoever is still there then is killed.
  static constexpr Duration kLeaveTime = milliseconds(300);
  // Who lives on for that long after SIGKILL is stuck in the kernel.
  static constexpr Duration kStuckTime = seconds(10);
  // Before its device is blamed, it is looked at once more.
  static constexpr Duration kSecondLookTime = seconds(1);

  const Options& options() const { return setup_.plan->options.values; }
  Duration ping_interval() const;
  bool has_cuda_kernels() const;  // its ranks, on GPUs or on the CPU
  void kill_all(int signal, Actions& out);
  void rest_lost(std::int64_t rank, const std::string& what);
  void look_at_stuck(TimePoint now, Actions& out);
  ChildId child(std::int64_t rank) const;
  void begin_dying(std::int64_t rank, const std::string& what, TimePoint now, Actions& out);
  void fault(Worker& worker, std::int64_t rank, const Fault& fault, TimePoint now, Actions& out);
  void loaded(Worker& worker, const Loaded& loaded);
  void waits(Worker& worker, TimePoint now);
  void pong(const Pong& pong, TimePoint now);
  void send_load(std::int64_t rank, Actions& out);
  bool is_awaited(const Worker& worker) const;
  // The first rank that goes by another table of collectives than rank 0; -1: none does.
  std::int64_t odd_table() const;
  bool is_mute() const;
  void settle(TimePoint now, Actions& out);
  void buried(TimePoint now, Actions& out);
  Duration longest_delay() const;
  void rest(TimePoint now, Actions& out);
  void condemn(std::int64_t rank, Error verdict, TimePoint now, Actions& out);
  void check_loading(TimePoint now, Actions& out);
  std::string who_waits_for(std::int64_t rank) const;
  std::int64_t last_to_join(std::int64_t suspect, TimePoint silent_since) const;
  void check_ready(TimePoint now, Actions& out);
  bool is_answering(const Worker& worker) const;

  Setup setup_;
  RestartPolicy policy_;
  CohortState state_ = CohortState::idle;
  std::vector<Worker> workers_;
  std::int64_t incarnation_ = 0;
  std::int64_t ended_incarnation_ = 0;
  bool ended_by_fault_ = false;
  std::int64_t starts_ = 0;
  TimePoint started_at_;
  Duration started_in_{0};
  std::string endpoint_;
  Blocks kv_blocks_ = 0;
  Tokens context_length_ = 0;  // committed with them
  bool is_proved_ = false;
  bool is_ended_ = false;
  bool holds_ = false;
  bool holds_opened_ = false;
  std::int64_t ping_sequence_ = 0;
  TimePoint ping_at_;    // when the next one is due
  TimePoint kill_at_;    // while dying
  TimePoint bury_at_;    // when all are gone, but last words may follow
  TimePoint killed_at_;  // and did not end; 0: not yet
  TimePoint looked_at_;  // at those that do not end
  bool is_stuck_said_ = false;
  bool was_killed_ = false;
  TimePoint retry_at_;
  LeaderFigures figures_;
  Json collectives_ = {};        // by which the last start that was ready went
  std::vector<RankMark> marks_;  // by rank; empty: not known
  std::optional<RootCause> last_cause_;
  bool has_new_cause_ = false;
};

}  // namespace plimsoll
