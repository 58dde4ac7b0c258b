// Supervisor: generations of one deployment, and what the CLI and signals make of them. Pure: an
// event in, actions out; the answers to actions come back as events, in order.
//
// A generation is one set of options in operation. At most one command that changes anything is
// under way; its Reply is sent when it is done or has failed. Changes that come meanwhile wait for
// their turn.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/change_watch.h"
#include "daemon/deployment.h"
#include "daemon/events.h"
#include "daemon/memory_wait.h"
#include "daemon/reconfigure.h"
#include "daemon/strangers.h"
#include "shared/options/option_diff.h"

namespace plimsoll {

class Supervisor {
 public:
  struct Setup {
    OptionSet options;
    std::string instance;
    std::string version;
    std::int64_t pid = 0;
    std::string runtime;
    std::string state;
    std::string log_file;
    std::uint64_t seed = 0;
    TimePoint started;
    std::int64_t started_unix = 0;     // the same, in seconds since the epoch
    std::int64_t last_generation = 0;  // of earlier daemons
    std::optional<Committed> committed = {};
    std::int64_t interrupted = 0;  // a generation of it that never served; 0: none
    std::string config_file = {};  // the absolute path of what a next daemon reads, too
  };
  explicit Supervisor(Setup setup);

  Actions handle(const Event& event, TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  // What `status` shows, read-only.
  const Setup& setup() const { return setup_; }
  const OptionSet& options() const { return options_; }
  const Deployment* deployment() const { return deployment_.get(); }
  DeploymentState state() const;
  std::string reason() const;  // why it is not serving
  std::int64_t generation() const { return generation_; }
  const std::string& url() const { return url_; }
  const char* operation_name() const;  // "start", "reconfigure", ...; "" when none is under way
  const std::optional<LastFault>& last_fault() const;
  TimePoint serving_since() const { return serving_since_; }
  const Quarantine& quarantined() const { return quarantine_; }
  // What the next start of a daemon runs; 0: what it is given then.
  std::int64_t committed() const { return committed_ ? committed_->generation : 0; }

 private:
  enum class OperationKind { none, start, stop, restart, reconfigure };
  // What a failed reconfiguration goes back to.
  struct Previous {
    OptionSet options;
    LaunchPlan plan;
    std::int64_t generation = 0;
    GenerationRecord record;
  };
  struct Operation {
    OperationKind kind = OperationKind::none;
    std::vector<std::string> waiting;  // peers that get the Reply
    OptionSet target;
    std::string cause;  // for the record: "start", "rollback to 3"
    std::optional<ChangePath> wanted_path;
    ChangePath path = ChangePath::restart;
    bool is_in_place = false;  // the deployment changes, and is not replaced
    std::int64_t based_on = 0;
    std::optional<LaunchPlan> plan;  // of the target
    std::int64_t question = 0;       // whose answer that is to be
    std::optional<Previous> previous = {};
    std::optional<Error> failure;        // of the target, while the previous one is started again
    std::optional<OptionSet> given;      // what a next daemon is given, once this is in operation
    Json result;                         // of the Reply, as far as it is known
    bool is_dry_run = false;             // only planned
    std::optional<ChangeWatch> watch;    // the target serves, and may still be taken back
    std::optional<Error> verdict;        // why what serves is taken back
    std::optional<TimePoint> paused_at;  // since then nothing serves
    std::optional<Duration> pause;       // how long that was
    bool is_launched = false;            // what ends now is the target, no longer what ran before
    bool ends_daemon = false;
    int exit_code = 0;
    TimePoint since;
    // While the target would fit if others gave their memory back.
    MemoryWait memory_wait;
    std::optional<TimePoint> plan_again_at;
    OptionSet planned_options;
    Quarantine released = {};               // by this restart, as long as it may fail
    bool has_released = false;              // what fails after that stays in quarantine
    std::optional<TimePoint> signalled_at;  // by the signal that began or joined a stop
  };

  void on(const Begin& event, TimePoint now);
  void on(const Planned& event, TimePoint now);
  void on(const ListenerBound& event, TimePoint now);
  void on(const ChildStarted& event, TimePoint now);
  void on(const SpawnFailed& event, TimePoint now);
  void on(const ChildExited& event, TimePoint now);
  void on(const ChildDying& event, TimePoint now);
  void on(const DeviceFaulted& event, TimePoint now);
  void on(const DevicesFound& event, TimePoint now);
  void on(const ProcessSeen& event, TimePoint now);
  void on(const Received& event, TimePoint now);
  void on(const StopSignal& event, TimePoint now);
  void on(const Tick& event, TimePoint now);

  // supervisor_devices.cc
  void quarantine(const DeviceFault& fault, TimePoint now);
  bool is_planned_on_lost(const LaunchPlan& plan) const;
  bool was_reset(const QuarantinedDevice& device) const;
  void release_quarantine();
  void restore_quarantine();
  void make_plan(const OptionSet& options);

  // supervisor_commands.cc
  void command(const std::string& peer, const Command& command, TimePoint now);
  void start_command(const std::string& peer, const Json& arguments, TimePoint now);
  void stop_command(const std::string& peer, const Json& arguments, TimePoint now);
  void restart_command(const std::string& peer, const Json& arguments, TimePoint now);
  void reconfigure_command(const std::string& peer, const Json& arguments, TimePoint now);
  void apply_live(const std::string& peer, OptionSet next, const ReconfigureRequest& request,
                  Json result, TimePoint now);
  std::optional<OptionSet> given_with(const ReconfigureRequest& request) const;
  Result<ChangePath> path_of_change() const;
  Duration predicted_pause(ChangePath path) const;
  void begin_change(TimePoint now);
  void watch_change(TimePoint now);
  void change_failed(TimePoint now);
  void watch_target(TimePoint now);
  std::optional<Error> look_at_target(TimePoint now, bool& is_committed);
  void remember_previous();
  void begin_replacement(TimePoint now);
  void note_pause(TimePoint now);
  void finish_dry_run();
  bool put_off(const std::string& peer, const Command& command);
  void begin_what_waits(TimePoint now);
  void reply(const std::string& peer, std::int64_t code, std::string message, Json result = {});
  void reply_error(const std::string& peer, const Error& error);

  // supervisor_records.cc
  std::int64_t unix_time(TimePoint at) const;
  void write_record();
  void begin_record(TimePoint now);
  void resume_record(const GenerationRecord& record);
  void record_refusal(const Error& error, const LaunchPlan* plan, TimePoint now);
  void record_serving(TimePoint now);
  void record_live_change(const Json& options, const std::string& cause, TimePoint now);
  void end_record(Outcome outcome, const std::string& message, TimePoint now);
  void note_speed(TimePoint now);
  void commit();
  void uncommit();
  OptionSet first_options();

  bool waits_for_memory(const Planned& event, TimePoint now);
  bool is_running() const { return deployment_ != nullptr; }
  // Nothing runs yet of what is on its way.
  bool is_planning() const {
    return deployment_ == nullptr && is_bringing_up() && !operation_.is_dry_run;
  }
  bool is_bringing_up() const {
    return operation_.kind != OperationKind::none && operation_.kind != OperationKind::stop;
  }
  Operation& begin_operation(OperationKind kind, TimePoint now);
  void launch(TimePoint now);
  void create_deployment(TimePoint now);
  void begin_stop(Deployment::StopHow how, TimePoint now);
  void report_loading(TimePoint now);
  void extend_deadline(TimePoint now);
  std::string serving_line() const;
  void settle(TimePoint now);
  void deployment_gone(TimePoint now);
  void target_failed(const Error& error, TimePoint now);
  void target_serves(TimePoint now);
  void give_up(const std::string& why);
  void finish(std::int64_t code, const std::string& message, const Json& result = {});
  void exit(int code);
  void report(TimePoint now);
  void log(LogLevel level, std::string line) { out_.emplace_back(Log{level, std::move(line)}); }

  Setup setup_;
  Strangers strangers_;  // outlives the deployment
  Quarantine quarantine_;
  OptionSet given_;    // what a next daemon would be given: flags, environment and file
  OptionSet options_;  // of the present generation, or of the next start
  std::unique_ptr<Deployment> deployment_;
  std::optional<Error> failure_;  // of the last deployment, when it has failed
  std::optional<LastFault> last_fault_;
  std::int64_t generation_ = 0;
  std::int64_t generations_ = 0;  // numbers given out
  std::int64_t incarnations_ = 0;
  std::int64_t questions_ = 0;
  Operation operation_;
  struct Waiting {
    std::string peer;
    Command command;
  };
  std::deque<Waiting> waiting_;  // changes, in the order in which they came
  GenerationRecord record_;      // of the present generation; ended: of the last one
  TimePoint speed_written_at_;
  std::optional<Committed> committed_;
  std::string url_;
  std::string bound_;  // host and port that the listener was bound for; empty: none
  bool is_exiting_ = false;
  bool was_notified_ready_ = false;
  DeploymentState reported_ = DeploymentState::stopped;
  std::int64_t reported_percent_ = -1;
  TimePoint progress_logged_at_;
  TimePoint extended_at_;
  TimePoint launched_at_;
  TimePoint serving_since_;
  Actions out_;
};

}  // namespace plimsoll
