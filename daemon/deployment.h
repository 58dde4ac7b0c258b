// Deployment: one launch plan in operation: the replicas' workers and the router. Pure.
//
//   loading -> warming -> serving -> draining -> stopped       any -> failed (when nothing is left)
//
// It never becomes serving before a real request has been answered through the router. Before it
// has served, whatever can't be helped by another try ends it; after that it keeps what works.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/cohort.h"
#include "daemon/events.h"
#include "daemon/reconfigure.h"
#include "daemon/router_child.h"
#include "daemon/strangers.h"
#include "shared/memory/reconcile.h"

namespace plimsoll {

enum class DeploymentState { planned, loading, warming, serving, draining, stopped, failed };
const char* deployment_state_name(DeploymentState state);

struct LastFault {
  std::string message;
  std::int64_t replica = -1;  // -1: the router
  std::int64_t rank = -1;
  TimePoint at;
};

class Deployment {
 public:
  struct Setup {
    std::string instance;
    std::string runtime;
    std::uint64_t seed = 0;
    int starts_max = 5;  // of each replica, before it has been ready
    // Another deployment takes its place on the same socket where it fails: until it has served it
    // lets nobody in, for as long as clients may be held.
    bool can_go_back = false;
  };
  // What is the daemon's, and outlives the deployment: the counters of incarnations and questions,
  // and others.
  struct Shared {
    std::int64_t& incarnations;
    std::int64_t& questions;
    Strangers& strangers;
    const Quarantine& quarantine;
  };
  Deployment(LaunchPlan plan, Setup setup, Shared shared);
  Deployment(const Deployment&) = delete;
  Deployment& operator=(const Deployment&) = delete;

  void start(TimePoint now, Actions& out);
  void child_started(const ChildId& child, std::int64_t pid, TimePoint now, Actions& out);
  void spawn_failed(const ChildId& child, const Error& error, TimePoint now, Actions& out);
  void child_dying(const ChildId& child, TimePoint now, Actions& out);
  void child_exited(const ChildId& child, const Ending& ending, TimePoint now, Actions& out);
  // Anything but a command. Messages of unknown peers are logged once a peer and dropped.
  void said(const std::string& peer, const Message& message, TimePoint now, Actions& out);
  // One that is in quarantine now.
  void device_faulted(const DeviceFault& fault, TimePoint now, Actions& out);
  void devices_found(const DevicesFound& found, TimePoint now, Actions& out);
  // A worker that does not end: whether it is to be abandoned, and what its device has then.
  struct Stuck {
    std::optional<DeviceFault> fault;
  };
  std::optional<Stuck> process_seen(const ProcessSeen& seen, TimePoint now, Actions& out);
  void abandon(const ChildId& child, TimePoint now, Actions& out);
  // Before a tick: how far the ranks are.
  void note_marks(const std::vector<ReplicaMarks>& replicas);
  void tick(TimePoint now, Actions& out);

  // In order: the router finishes its requests, then the workers leave, within shutdown_timeout.
  // Where another deployment follows on the same socket, nobody is refused.
  struct StopHow {
    bool is_followed = false;
  };
  void stop(StopHow how, TimePoint now, Actions& out);
  void kill(TimePoint now, Actions& out);  // at once
  void set_live(const OptionSet& options, Json options_json, Actions& out);

  // Replicas of that plan take the place of those that are there, while the router stays, by one of
  // the paths beside, rolling and hold; each proves itself with a token before it gets requests.
  // One that fails brings back what was there. REQUIRES: has_served(), and no change is under way.
  void change(LaunchPlan next, ChangePath path, TimePoint now, Actions& out);
  enum class ChangeState { none, moving, moved, reverting, reverted };
  ChangeState change_state() const { return change_ ? change_->state : ChangeState::none; }
  const std::optional<Error>& change_failure() const { return change_->failure; }
  // It has moved, and is taken back.
  void revert(Error why, TimePoint now, Actions& out);
  // It has moved or is reverted: what it left is forgotten.
  void end_change(Actions& out);
  // How long nobody would be served on the path hold: what runs, and a start.
  Duration hold_estimate() const;

  // A rank has found less memory than it was planned with: MakePlan was asked for, once, and this
  // is to be its answer. Nothing has been loaded yet.
  // Or all replicas have lost their devices, and it is to be planned without these.
  bool awaits_plan(std::int64_t question) const {
    const bool is_awaited = confirmation_ == Confirmation::asked || awaits_replicas_;
    return is_awaited && question == plan_question_;
  }
  void replanned(const Result<LaunchPlan>& plan, TimePoint now, Actions& out);

  DeploymentState state() const { return state_; }
  bool has_served() const { return has_served_; }
  const std::optional<Error>& failure() const { return failure_; }
  bool has_processes() const;
  // Bytes of weights in memory over all ranks, and to be.
  Progress progress() const;
  const LaunchPlan& plan() const { return plans_.front().plan; }
  const std::vector<Cohort>& cohorts() const { return cohorts_; }
  const Cohort* find_cohort(std::int64_t replica) const;
  const char* replica_state(const Cohort& cohort) const;  // as the router is told
  const RouterChild& router() const { return router_; }
  const std::optional<LastFault>& last_fault() const { return last_fault_; }
  // Terms that are not what was planned, beyond their tolerance; of the last ranks that loaded.
  const std::vector<Drift>& drifts() const { return drifts_; }
  std::optional<TimePoint> next_deadline() const;
  // A replica has died whose cause is not known yet.
  bool is_dying() const;
  // From here on nothing takes its place where it fails.
  void cut_way_back() { setup_.can_go_back = false; }

 private:
  // After its deadline, for the router to end each stream that has not ended with a last event.
  static constexpr Duration kFarewellTime = milliseconds(500);
  enum class StopPhase { none, router, workers, terminated, killed };
  enum class Confirmation { none, asked, done };
  struct PlanInUse {
    LaunchPlan plan;
    std::optional<Blocks> kv_blocks = {};  // of each rank, once its first replicas have committed
  };
  // One replica of a plan.
  struct Seat {
    std::int64_t replica = 0;
    std::int64_t index = 0;
  };
  // Some leave, others come, before that (`starts_first`) or after it.
  struct Move {
    std::vector<Seat> leave;
    std::vector<Seat> arrive;
    bool starts_first = false;
  };
  enum class MovePhase { begin, leaving, arriving };
  // A test request to one replica (deployment_proof.cc).
  struct Proof {
    std::int64_t sequence = 0;  // of a probe that is under way, 0: none
    std::int64_t router = 0;    // the incarnation that was asked
    std::int64_t replica = -1;
    int failed = 0;           // in a row
    TimePoint at;             // the answer's deadline, or the next try
    bool is_blocked = false;  // nobody can be asked now, whatever the time
    // The answer will not come: it is asked again at once.
    void forget(TimePoint now) {
      sequence = 0;
      at = now;
    }
    std::optional<TimePoint> deadline() const {
      const bool is_due = sequence != 0 || failed > 0;
      return is_due && !is_blocked ? std::optional(at) : std::nullopt;
    }
  };
  // deployment_change.cc
  struct Change {
    PlanInUse* from = nullptr;  // of those that leave
    PlanInUse* to = nullptr;
    std::vector<Move> moves;  // one after the other
    std::size_t at = 0;
    MovePhase phase = MovePhase::begin;
    Proof proof;  // of those that arrive, one after the other
    TimePoint leave_by;
    ChangeState state = ChangeState::moving;
    std::optional<Error> failure;
  };

  Cohort* cohort_of(const ChildId& child);
  Cohort* find_cohort(std::int64_t replica);
  void add_cohort(const Seat& seat, const PlanInUse& plan, int starts_max);
  bool is_ready(const Cohort& cohort) const;  // for requests
  bool is_moving() const;
  std::int64_t free_replica() const;
  void step_change(TimePoint now, Actions& out);
  bool step_move(TimePoint now, Actions& out);
  void begin_leaving(const Move& move, TimePoint now, Actions& out);
  bool have_left(const Move& move, TimePoint now, Actions& out);
  void begin_arriving(const Move& move, TimePoint now, Actions& out);
  bool have_arrived(const Move& move, TimePoint now, Actions& out);
  std::optional<Error> arrival_failure() const;
  void begin_revert(Error why);
  void prove(Proof& proof, std::int64_t replica, TimePoint now, Actions& out);
  void prove_restarted(bool can_ask, TimePoint now, Actions& out);
  bool is_arriving(const Cohort& cohort) const;
  bool proof_result(const ProbeResult& result, TimePoint now, Actions& out);
  void arrival_answered(const ProbeResult& result, TimePoint now, Actions& out);
  void restarted_answered(const ProbeResult& result, TimePoint now, Actions& out);
  void use_router_plan(const PlanInUse& plan, Actions& out);
  std::optional<ChildId> hello(const std::string& peer, const Hello& hello);
  void settle(TimePoint now, Actions& out);
  void settle_stop(TimePoint now, Actions& out);
  bool check_failed(TimePoint now, Actions& out);
  // deployment_devices.cc
  void start_cohort(Cohort& cohort, TimePoint now, Actions& out);
  void replace_lost(Actions& out);
  void replace_all(const Result<LaunchPlan>& plan, TimePoint now, Actions& out);
  bool move_lost(Cohort& cohort, const std::vector<Device>& devices);
  bool commit_loaded(TimePoint now, Actions& out);
  bool commit_loaded(PlanInUse& use, TimePoint now, Actions& out);
  void confirm(const Hello& hello, Actions& out);
  void confirm_devices(TimePoint now, Actions& out);
  void settle_context(PlanInUse& use, Tokens context_length, Actions& out);
  void compare_ready(Actions& out);
  void report(std::vector<Drift> drifts, Actions& out);
  void restart_due(TimePoint now, Actions& out);
  void probe(TimePoint now, Actions& out);
  void probe_result(const ProbeResult& result, TimePoint now, Actions& out);
  void fail(Error error, TimePoint now, Actions& out);
  void terminate(TimePoint now, Actions& out);
  void signal_all(int signal, TimePoint now, Actions& out);
  void signal_workers(int signal, TimePoint now, Actions& out);
  void note_faults(TimePoint now);
  bool all_ready() const;
  void publish(Actions& out);

  std::list<PlanInUse> plans_;  // the first is in operation; a second one while it changes
  Setup setup_;
  std::int64_t& incarnations_;
  std::int64_t& questions_;
  Strangers& strangers_;
  const Quarantine& quarantine_;
  std::vector<Cohort> cohorts_;
  RouterChild router_;
  std::map<std::string, ChildId> peers_;
  DeploymentState state_ = DeploymentState::planned;
  Confirmation confirmation_ = Confirmation::none;
  std::string short_of_;          // what a rank did not find that was planned with
  bool awaits_devices_ = false;   // the answer to FindDevices
  bool awaits_replicas_ = false;  // the answer to MakePlan, without any replica
  std::int64_t devices_question_ = 0;
  std::int64_t plan_question_ = 0;
  std::optional<Error> failure_;
  bool has_served_ = false;
  std::int64_t probe_sequence_ = 0;
  bool is_probing_ = false;
  bool is_proved_ = false;  // the present set of processes has answered a real request
  int probes_failed_ = 0;   // in a row
  TimePoint probe_at_;      // the answer's deadline, or the next try
  StopPhase stop_phase_ = StopPhase::none;
  TimePoint stop_at_;  // when the present phase of stopping ends
  bool is_followed_ = false;
  bool holds_clients_ = false;
  TimePoint hold_until_;
  std::optional<Change> change_;
  Proof proof_;  // of a replica that was started again
  std::string published_;
  std::string published_to_;
  std::optional<LastFault> last_fault_;
  std::vector<Drift> drifts_;
  std::vector<Drift> drifts_before_;  // those that were planned for before anything was loaded
  std::set<std::string> drifts_said_;
  std::map<std::int64_t, std::int64_t> compared_;  // by replica: the incarnation that was ready
};

}  // namespace plimsoll
