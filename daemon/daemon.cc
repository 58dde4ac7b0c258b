#include "daemon/daemon.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/leftovers.h"
#include "daemon/model_identity.h"
#include "daemon/planner.h"
#include "daemon/status_report.h"
#include "shared/base/file.h"
#include "shared/base/kept_line.h"
#include "shared/control/descriptors.h"
#include "shared/control/endpoints.h"
#include "shared/options/folders.h"

namespace plimsoll {
namespace {

constexpr int kControlMode = 0600;
constexpr std::size_t kLogBytesMax = 16 * 1024 * 1024;
// Between two looks at the other sources of events, so that no peer can hold them up.
constexpr int kMessagesAtOnceMax = 1000;
constexpr Duration kWaitMax = seconds(60);
// Children end together, and what they have left is looked for among all processes: once for all.
constexpr Duration kTidyAfter = milliseconds(150);

std::string random_instance() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

Result<UniqueFd> stop_signals() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&wanted, number);
  // Before the first other thread starts, so that all of them inherit the mask.
  ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return unavailable(std::string("watch signals: ") + std::strerror(errno));
  return fd;
}

// The same form as the log's own lines on stderr.
std::string stamped(LogLevel level, const std::string& line) {
  timespec at{};
  ::clock_gettime(CLOCK_REALTIME, &at);
  tm parts{};
  ::localtime_r(&at.tv_sec, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03d} {} plimsolld: {}", text.data(), at.tv_nsec / 1'000'000,
                     "DIWE"[static_cast<int>(level)], line);
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::create(const OptionSet& options,
                                               std::filesystem::path programs,
                                               std::string config_file) {
  InheritedDescriptors inherited = take_inherited_descriptors();
  UniqueFd signals = TRY(stop_signals());
  UniqueFd deaths(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!deaths) return unavailable(std::string("make an eventfd: ") + std::strerror(errno));
  const std::filesystem::path runtime = runtime_folder(options.values);
  const std::filesystem::path state = state_folder(options.values);
  InstanceLock lock = TRY(InstanceLock::take(runtime));
  InstanceLock state_lock = TRY(InstanceLock::take_state(state));
  LogFile log_file = TRY(LogFile::open(state / "plimsolld.log", kLogBytesMax));
  Journal journal = TRY(Journal::open(state));
  std::string endpoint = control_endpoint(runtime);
  Channel channel = TRY(Channel::bind(endpoint, kControlMode));

  Supervisor::Setup setup;
  setup.options = options;
  setup.instance = random_instance();
  setup.version = PLIMSOLL_VERSION;
  setup.pid = ::getpid();
  setup.runtime = runtime.string();
  setup.state = state.string();
  setup.log_file = log_file.path().string();
  setup.seed = std::random_device()();
  setup.started = now();
  setup.started_unix = unix_seconds();
  setup.last_generation = journal.last_number();
  setup.committed = journal.committed();
  setup.interrupted = journal.interrupted();
  setup.config_file = std::move(config_file);
  return std::unique_ptr<Daemon>(new Daemon({.lock = std::move(lock),
                                             .state_lock = std::move(state_lock),
                                             .inherited = std::move(inherited),
                                             .channel = std::move(channel),
                                             .log_file = std::move(log_file),
                                             .journal = std::move(journal),
                                             .signals = std::move(signals),
                                             .deaths = std::move(deaths),
                                             .programs = std::move(programs),
                                             .state = state,
                                             .control_endpoint = std::move(endpoint),
                                             .setup = std::move(setup)}));
}

Daemon::Daemon(Parts parts)
    : parts_(std::move(parts)),
      supervisor_(parts_.setup),
      children_(ChildGroups::of_service()),
      http_(std::move(parts_.inherited.sockets), service_),
      weights_(std::move(parts_.inherited.weights), service_) {}

int Daemon::run() {
  for (const std::string& line : Lives::begin(parts_.state, parts_.setup.instance)) {
    log(LogLevel::warning, line);
  }
  for (const std::string& line : parts_.journal.damaged()) log(LogLevel::warning, "record " + line);
  handle(Begin{});
  while (!exit_code_) {
    // Its descriptor tells of messages only once; what is left here has to be come back to.
    const bool has_more = take_messages();
    if (exit_code_) break;
    service_.alive(now());
    wait(has_more ? Duration(0) : kWaitMax);
    if (refusing_fd() >= 0) refuser_.serve(refusing_fd(), why_nothing_serves(), now());
    refuser_.look(now());
    take_signals();
    // What a child has said counts before the fact that it has ended.
    (void)take_messages();
    take_deaths();
    take_output();
    take_device_faults();
    take_endings();
    oom_.look(now());
    const std::optional<TimePoint> deadline = supervisor_.next_deadline();
    if (!exit_code_ && deadline && now() >= *deadline) handle(Tick{marks()});
  }
  tidy();
  if (is_final(*exit_code_) && http_.unserved() >= 0) {
    refuser_.finish(http_.unserved(), why_nothing_serves(), kFarewellTime);
  }
  return *exit_code_;
}

// Where clients may connect although nothing runs, and nothing is on its way.
int Daemon::refusing_fd() const {
  const DeploymentState state = supervisor_.state();
  const bool is_down = state == DeploymentState::stopped || state == DeploymentState::failed;
  return is_down ? http_.unserved() : -1;
}

std::string Daemon::why_nothing_serves() const {
  const std::string reason = supervisor_.reason();
  return fmt::format("nothing is served: the deployment is {}{}{}",
                     deployment_state_name(supervisor_.state()), reason.empty() ? "" : ": ",
                     reason);
}

void Daemon::wait(Duration longest) {
  std::vector<pollfd> wanted = {
      {.fd = parts_.channel.fd(), .events = POLLIN, .revents = 0},
      {.fd = parts_.signals.get(), .events = POLLIN, .revents = 0},
      {.fd = parts_.deaths.get(), .events = POLLIN, .revents = 0},
  };
  for (const auto& [id, child] : children_.children()) {
    wanted.push_back({.fd = child.process.pidfd(), .events = POLLIN, .revents = 0});
    if (!child.is_silent) {
      wanted.push_back({.fd = child.process.error_output(), .events = POLLIN, .revents = 0});
    }
  }
  wanted.push_back({.fd = devices_.fd(), .events = POLLIN, .revents = 0});  // -1 is left out
  if (refusing_fd() >= 0 && refuser_.has_room()) {
    wanted.push_back({.fd = refusing_fd(), .events = POLLIN, .revents = 0});
  }
  for (const int client : refuser_.descriptors()) {
    wanted.push_back({.fd = client, .events = POLLIN, .revents = 0});
  }
  TimePoint until = now() + longest;
  for (const std::optional<TimePoint>& at : {supervisor_.next_deadline(), service_.next_deadline(),
                                             refuser_.next_deadline(), tidy_at_}) {
    if (at) until = std::min(until, *at);
  }
  const Duration left = std::max(Duration(until - now()), Duration(0));
  const auto whole = std::chrono::duration_cast<seconds>(left);
  const timespec timeout{.tv_sec = whole.count(), .tv_nsec = (left - whole).count()};
  // An interrupted or failed wait is another turn of the loop, no more.
  (void)::ppoll(wanted.data(), wanted.size(), &timeout, nullptr);
}

bool Daemon::take_messages() {
  for (int i = 0; i < kMessagesAtOnceMax && !exit_code_; ++i) {
    std::optional<Received> received = parts_.channel.receive();
    while (const std::optional<std::string> refusal = parts_.channel.take_refusal()) {
      log(LogLevel::warning, "control: " + *refusal);
    }
    if (received) {
      handle(std::move(*received));
    } else if (!parts_.channel.has_more()) {
      return false;
    }
  }
  return true;
}

void Daemon::take_signals() {
  signalfd_siginfo info{};
  while (!exit_code_ && ::read(parts_.signals.get(), &info, sizeof info) == sizeof info) {
    handle(StopSignal{});
  }
}

void Daemon::take_output() {
  std::vector<ChildId> ids;
  for (const auto& [id, child] : children_.children()) ids.push_back(id);
  for (const ChildId& id : ids) write_lines(children_.read_output(id));
}

void Daemon::write_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const bool is_kept_only = line.find(fmt::format(": {}", kKeptOnly)) != std::string::npos;
    // Without a terminal, the file has it.
    if (!is_kept_only) (void)std::fprintf(stderr, "%s\n", line.c_str());
    parts_.log_file.line(line);
  }
}

// Ranks that hold their lives are watched from here on; those that do not any more are told of.
void Daemon::take_deaths() {
  std::uint64_t count = 0;
  (void)!::read(parts_.deaths.get(), &count, sizeof count);  // nothing there: nobody has died
  std::vector<ChildId> dead;
  for (auto& [replica, segment] : segments_) {
    for (int rank = 0; rank < segment.view.ranks(); ++rank) {
      if (!segment.view.is_life_held(rank)) continue;
      auto& watch = segment.watches[rank];
      if (!watch) {
        watch = std::make_unique<DeathWatch>(segment.view, rank, parts_.deaths.get());
      } else if (count > 0 && watch->is_over()) {
        dead.push_back({.replica = replica, .rank = rank, .incarnation = segment.incarnation});
      }
    }
  }
  for (const ChildId& child : dead) handle(ChildDying{child});
}

void Daemon::take_endings() {
  std::vector<ChildId> ids;
  for (const auto& [id, child] : children_.children()) ids.push_back(id);
  for (const ChildId& id : ids) {
    if (exit_code_) return;
    const std::optional<ChildTable::Ended> ended = children_.reap(id);
    if (!ended) continue;
    write_lines(ended->lines);
    Ending ending = ended->ending;
    ending.mark = mark_of(id);
    if (ending.by_signal && ending.code == SIGKILL) ending.by_oom = oom_.has_killed();
    devices_.examine();
    if (!tidy_at_) tidy_at_ = now() + kTidyAfter;
    handle(ChildExited{id, ending});
  }
  children_.drop_empty_groups();
  if (tidy_at_ && now() >= *tidy_at_) tidy();
}

void Daemon::tidy() {
  tidy_at_.reset();
  for (const std::string& line : children_.tidy()) log(LogLevel::warning, line);
}

// What its driver says of a device counts before what a worker on it has died of.
void Daemon::take_device_faults() {
  for (DeviceFault& fault : devices_.take()) handle(DeviceFaulted{std::move(fault)});
}

std::vector<ReplicaMarks> Daemon::marks() const {
  std::vector<ReplicaMarks> all;
  for (const auto& [replica, segment] : segments_) {
    ReplicaMarks& marks = all.emplace_back();
    marks.replica = replica;
    marks.incarnation = segment.incarnation;
    for (int rank = 0; rank < segment.view.ranks(); ++rank) {
      marks.ranks.push_back(segment.view.mark(rank));
    }
  }
  return all;
}

RankMark Daemon::mark_of(const ChildId& child) const {
  const auto segment = segments_.find(child.replica);
  const bool is_there = child.kind == ChildId::Kind::worker && segment != segments_.end() &&
                        segment->second.incarnation == child.incarnation;
  return is_there ? segment->second.view.mark(static_cast<int>(child.rank)) : RankMark{};
}

// The supervisor's answer to an event, and to the events that acting on it makes.
void Daemon::handle(Event event) {
  events_.push_back(std::move(event));
  while (!events_.empty()) {
    const Event next = std::move(events_.front());
    events_.pop_front();
    for (Action& action : supervisor_.handle(next, now())) {
      std::visit([this](auto& alternative) { act(std::move(alternative)); }, action);
    }
  }
  if (std::exchange(is_dirty_, false)) save_state();
}

// ---- actions ----

void Daemon::act(MakePlan&& action) {
  Planned planned = plan_launch(action.options, children_.pids(), action.without);
  if (planned.plan) weights_.note_shared(*planned.plan);
  events_.push_back(std::move(planned));
}

void Daemon::act(FindDevices&& action) {
  events_.push_back(DevicesFound{find_devices(action.options)});
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

Result<std::int64_t> Daemon::spawn(const ChildId& child) {
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

void Daemon::save_state() {
  const Status saved =
      write_file(parts_.state / "state.json", dump_json(status_json(supervisor_, now()), 2) + "\n");
  if (!saved && !is_state_bad_) log(LogLevel::warning, "save the state: " + saved.error().message);
  if (saved && is_state_bad_) log(LogLevel::info, "the state is saved again");
  is_state_bad_ = !saved;
}

void Daemon::log(LogLevel level, const std::string& line) {
  if (!log_enabled(level)) return;
  log_line(level, line);
  parts_.log_file.line(stamped(level, line));
}

}  // namespace plimsoll
