// Daemon: the loop of plimsolld: messages, signals, children and time in; the supervisor's actions
// out. Runs in the main thread, which must live as long as the children.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/child_table.h"
#include "daemon/death_watch.h"
#include "daemon/device_watch.h"
#include "daemon/http_socket.h"
#include "daemon/instance_lock.h"
#include "daemon/journal.h"
#include "daemon/log_file.h"
#include "daemon/oom_watch.h"
#include "daemon/refuser.h"
#include "daemon/service_notify.h"
#include "daemon/supervisor.h"
#include "daemon/surveyor.h"
#include "daemon/weight_store.h"
#include "shared/base/replica_segment.h"
#include "shared/base/shared_block.h"
#include "shared/control/channel.h"

namespace plimsoll {

class Daemon {
 public:
  // Takes the runtime folder and binds the control socket. `programs` is the folder of the worker
  // and the router. Errors: unavailable where another daemon has the runtime folder.
  // `config_file`: the one that the options are from, and a next daemon's will be; absolute.
  static Result<std::unique_ptr<Daemon>> create(const OptionSet& options,
                                                std::filesystem::path programs,
                                                std::string config_file = "");
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  int run();  // the exit code

 private:
  struct Parts {
    InstanceLock lock;
    InstanceLock state_lock;
    InheritedDescriptors inherited;
    Channel channel;
    LogFile log_file;
    Journal journal;
    UniqueFd signals;
    UniqueFd deaths;  // an eventfd
    std::filesystem::path programs;
    std::filesystem::path state;
    std::string control_endpoint;
    Supervisor::Setup setup;
  };
  struct Segment {
    SharedBlock block;
    ReplicaSegment view;
    std::int64_t incarnation = 0;
    // Between every two ranks: [rank][peer], in the order of peers.
    std::vector<std::vector<UniqueFd>> sockets = {};
    std::map<int, std::unique_ptr<DeathWatch>> watches = {};  // by rank; they end before the block
  };

  explicit Daemon(Parts parts);

  void wait(Duration longest);
  bool take_messages();  // whether there may be more
  void take_signals();
  void take_output();
  void write_lines(const std::vector<std::string>& lines);
  void take_deaths();
  void take_endings();
  void take_device_faults();
  void take_answers();
  void release_devices();
  std::vector<ReplicaMarks> marks() const;
  RankMark mark_of(const ChildId& child) const;
  void handle(Event event);

  void act(MakePlan&& action);
  void act(FindDevices&& action);
  void act(BindListener&& action);
  void act(KeepListener&& action);
  void act(CloseListener&& action);
  void act(CreateSegment&& action);
  void act(AbortSegment&& action);
  void act(DropSegment&& action);
  void act(Spawn&& action);
  void act(Kill&& action);
  void act(LookAtProcess&& action);
  void act(Abandon&& action);
  void act(Send&& action);
  void act(Notify&& action);
  void act(Log&& action);
  void act(ApplyLogLevel&& action);
  void act(SaveState&& action);
  void act(WriteRecord&& action);
  void act(KeepCommitted&& action);
  void act(Exit&& action);
  Status check_control_socket() const;
  Result<std::int64_t> spawn(const ChildId& child);
  void tidy();
  void save_state();
  int refusing_fd() const;
  std::string why_nothing_serves() const;
  void journal_said(const Status& status);
  bool can_say();
  void log(LogLevel level, const std::string& line);

  Parts parts_;
  Supervisor supervisor_;
  ServiceNotify service_;
  ChildTable children_;
  HttpSocket http_;
  Refuser refuser_;
  WeightStore weights_;
  OomWatch oom_;
  DeviceWatch devices_;
  Surveyor surveyor_;
  std::map<std::int64_t, Segment> segments_;  // by replica
  std::map<std::int64_t, Error> segment_errors_;
  std::deque<Event> events_;
  std::optional<TimePoint> tidy_at_;
  // That devices were last released for: a deployment, its operation, devices in quarantine.
  std::tuple<bool, std::string, std::size_t> released_for_;
  std::int64_t unsaid_ = 0;  // lines in a row that stderr could not take
  bool is_dirty_ = false;    // the state is to be saved
  bool is_journal_bad_ = false;
  bool is_state_bad_ = false;
  std::optional<int> exit_code_;
};

}  // namespace plimsoll
