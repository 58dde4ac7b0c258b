#include "daemon/daemon.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <utility>
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

// Where a pipe has room, it is for 4096 bytes: a longer line would wait for its reader.
constexpr std::size_t kSaidBytesMax = 4000;

void say(const std::string& line) {
  (void)std::fprintf(stderr, "%.*s\n", static_cast<int>(std::min(line.size(), kSaidBytesMax)),
                     line.c_str());
}

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
  // Last: where there is no daemon, whoever waits at them is told so by others.
  InheritedDescriptors inherited = take_inherited_descriptors();
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
    take_answers();
    take_endings();
    release_devices();
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
  for (const int fd : surveyor_.descriptors()) {
    wanted.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  if (refusing_fd() >= 0 && refuser_.has_room()) {
    wanted.push_back({.fd = refusing_fd(), .events = POLLIN, .revents = 0});
  }
  for (const int client : refuser_.descriptors()) {
    wanted.push_back({.fd = client, .events = POLLIN, .revents = 0});
  }
  TimePoint until = now() + longest;
  for (const std::optional<TimePoint>& at :
       {supervisor_.next_deadline(), service_.next_deadline(), refuser_.next_deadline(),
        surveyor_.next_deadline(), tidy_at_}) {
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
    if (!is_kept_only && can_say()) say(line);
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

// Nobody resets a GPU whose driver this process holds: what no worker is to use, or what has
// failed, is not watched any more.
void Daemon::release_devices() {
  const Deployment* deployment = supervisor_.deployment();
  const Quarantine& lost = supervisor_.quarantined();
  std::tuple<bool, std::string, std::size_t> present(deployment != nullptr,
                                                     supervisor_.operation_name(), lost.size());
  if (present == released_for_) return;
  released_for_ = std::move(present);
  std::vector<std::string> used;
  const auto use = [&](const Cohort& cohort) {
    for (std::int64_t rank = 0; rank < cohort.plan().tp; ++rank) {
      std::string device = cohort.device_of(rank);
      if (find_quarantined(lost, device) == nullptr) used.push_back(std::move(device));
    }
  };
  if (deployment != nullptr) std::ranges::for_each(deployment->cohorts(), use);
  devices_.keep(used);
}

// What has been found out about the machine.
void Daemon::take_answers() {
  for (Event& answer : surveyor_.take(now())) {
    auto* planned = std::get_if<Planned>(&answer);
    if (planned != nullptr && planned->plan) weights_.note_shared(*planned->plan);
    handle(std::move(answer));
    if (exit_code_) return;
  }
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

void Daemon::save_state() {
  const Status saved =
      write_file(parts_.state / "state.json", dump_json(status_json(supervisor_, now()), 2) + "\n");
  if (!saved && !is_state_bad_) log(LogLevel::warning, "save the state: " + saved.error().message);
  if (saved && is_state_bad_) log(LogLevel::info, "the state is saved again");
  is_state_bad_ = !saved;
}

// A terminal that is stopped, or a pipe that nobody reads, holds nobody up: the file has each line.
bool Daemon::can_say() {
  const auto has_room = [] {
    pollfd end{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    return ::poll(&end, 1, 0) == 1;
  };
  if (!has_room()) {
    ++unsaid_;
    return false;
  }
  if (unsaid_ == 0) return true;
  const std::string line = fmt::format("{} lines that nobody read here are in {}",
                                       std::exchange(unsaid_, 0), parts_.log_file.path().string());
  say(stamped(LogLevel::warning, line));
  if (has_room()) return true;
  ++unsaid_;
  return false;
}

void Daemon::log(LogLevel level, const std::string& line) {
  if (!log_enabled(level)) return;
  if (can_say()) log_line(level, std::string_view(line).substr(0, kSaidBytesMax));
  parts_.log_file.line(stamped(level, line));
}

}  // namespace plimsoll
