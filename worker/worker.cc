#include "worker/worker.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "shared/base/kept_line.h"
#include "shared/base/log.h"
#include "shared/base/replica_segment.h"
#include "shared/base/shared_block.h"
#include "shared/control/channel.h"
#include "shared/machine/device_query.h"
#include "shared/memory/simulation.h"
#include "shared/memory/step_message.h"
#include "worker/collective/table_choice.h"
#include "worker/crash_handler.h"
#include "worker/follower.h"
#include "worker/leader.h"
#include "worker/ledger_lines.h"
#include "worker/placement.h"
#include "worker/rank.h"
#include "worker/rank_backend.h"
#include "worker/rank_collective.h"
#include "worker/simulated_rank.h"
#include "worker/worker_setup.h"

namespace plimsoll {
namespace {

// For the supervisor to say the next thing; it gives up on a start long before.
constexpr Duration kSupervisorDeadline = seconds(3600);
constexpr Duration kDescriptorDeadline = seconds(60);
constexpr Duration kProgressInterval = milliseconds(100);
// How often a rank that waits for work looks at its other sources.
constexpr Duration kWeightsLook = milliseconds(5);
constexpr Duration kIdleLook = milliseconds(50);
constexpr Duration kIdleLookAlone = milliseconds(250);  // for a broken connection only
constexpr int kRequestSocketMode = 0600;

class Worker {
 public:
  Worker(const WorkerArguments& arguments, Channel control)
      : arguments_(arguments), control_(std::move(control)) {}

  Status run();
  // Last words; frees the peers from waiting for this rank.
  void fail(const Error& error);
  bool is_called_off() const { return is_called_off_; }  // told to end before it was ready

 private:
  template <typename T>
  Result<T> await(const char* what);
  Status load();
  Status load_simulated();
  Status confirm(const Opened& opened);
  Rank::Setup rank_setup() const;
  Status join_group(Rank::Setup& setup, const RankBackend* of);
  Result<UniqueFd> receive_segment(Rank::Setup& setup);
  Status wait_for_weights();
  bool has_peers() const { return launched_.shards.ranks.size() > 1; }
  void mark(Activity activity) const;
  Status commit();
  Status start_leader(const StepLimits& limits);
  Status start_follower(const StepLimits& limits);
  Status serve_as_leader();
  Status serve_as_follower();
  Status check_group() const;

  bool take_control();
  void handle(const Message& message);
  void answer(const Ping& ping);
  void apply(const SetLive& live);
  void say(const Message& message);
  void say_state(Message message);
  void rejoin();
  void report(const LoadProgress& progress);
  void pause(Duration duration);
  void wait_for_messages(Duration timeout) const;

  WorkerArguments arguments_;
  Channel control_;
  Hello hello_;
  std::optional<Message> state_said_;  // Loaded or Ready
  LaunchedRank launched_;
  PeerFds peers_;  // as they come
  std::optional<SharedBlock> segment_memory_;
  std::optional<ReplicaSegment> segment_;
  std::optional<CrashHandler> crash_handler_;
  std::unique_ptr<Rank> rank_;
  std::optional<ChosenTable> collectives_;
  std::optional<StepPublisher> publisher_;
  std::optional<StepReceiver> receiver_;
  std::unique_ptr<Leader> leader_;
  std::unique_ptr<Follower> follower_;
  std::optional<TimePoint> drain_until_;
  bool is_called_off_ = false;
  TimePoint reported_{};
};

Status Worker::run() {
  hello_.role = "worker";
  hello_.instance = arguments_.instance;
  hello_.pid = ::getpid();
  hello_.replica = arguments_.replica;
  hello_.rank = arguments_.rank;
  hello_.device = fmt::format("cpu {}", cpu_path_name(best_cpu_path()));
  if (const Result<Machine> machine = query_machine()) hello_.free = machine->memory_left();
  (void)control_.take_break();  // from here on it is watched
  TRY(control_.send(hello_));
  const Load launch = TRY(await<Load>("Load"));
  launched_ = TRY(read_load(launch));
  if (const auto level = parse_log_level(launched_.options.log_level)) log_level(*level);
  const TimePoint begin = now();
  TRY(load());
  LOG_DEBUG("loaded {} of weights in {:.2f} s", format_bytes(rank_->arena().taken(Term::weights)),
            to_seconds(now() - begin));
  say_state(Loaded{measured_to_json(rank_->measure())});
  TRY(commit());
  say_state(Ready{rank_->description(), measured_to_json(rank_->measure()),
                  chosen_to_json(collectives_)});
  mark(Activity::idle);
  rank_->engine().mark_steps(&segment_->line(static_cast<int>(arguments_.rank)));
  return leader_ ? serve_as_leader() : serve_as_follower();
}

void Worker::fail(const Error& error) {
  const bool is_told_by_daemon =
      error.code == Code::unavailable || error.code == Code::does_not_fit;
  if (is_told_by_daemon) {
    LOG_DEBUG("ends: {}", error.message);  // once, for all ranks that it is true of
  } else {
    LOG_ERROR("{}", error.message);
  }
  if (segment_ && !segment_->aborted()) {
    segment_->abort(fmt::format("rank {} failed: {}", arguments_.rank, error.message));
  }
  say(Fault{code_name(error.code), error.message});
}

template <typename T>
Result<T> Worker::await(const char* what) {
  const TimePoint deadline = now() + kSupervisorDeadline;
  while (now() < deadline) {
    std::optional<Received> received = control_.receive(kIdleLook);
    if (!received) {
      if (drain_until_) {
        is_called_off_ = true;
        return unavailable(fmt::format("told to end while waiting for {}", what));
      }
      TRY(check_group());
      rejoin();
      continue;
    }
    if (auto* message = std::get_if<T>(&received->message)) return std::move(*message);
    handle(received->message);
  }
  return timed_out(fmt::format("the supervisor never sent {}", what));
}

// By what its device has now the supervisor confirms the plan, or makes another.
Status Worker::confirm(const Opened& opened) {
  const bool spin = launched_.backend.spin;
  if (launched_.is_tentative) say_state(opened);
  while (launched_.is_tentative) {
    const Load load = TRY(await<Load>("the plan for what its device has"));
    launched_ = TRY(read_load(load));
  }
  launched_.backend.spin = spin;
  return {};
}

Rank::Setup Worker::rank_setup() const {
  return {.model_path = launched_.options.model,
          .shards = launched_.shards,
          .plan = launched_.plan,
          .limits = launched_.limits,
          .kv_type = launched_.kv_type,
          .kv_blocks_max = launched_.kv_blocks,
          .recorded_rows_max = launched_.recorded_rows_max,
          .kept_table = launched_.collectives};
}

Status Worker::load_simulated() {
  const Simulation simulation = TRY(read_simulation(launched_.options.simulation));
  launched_.backend.spin = false;  // nothing is computed: waiting ranks sleep
  TRY(confirm(open_simulated(*launched_.simulated_memory, simulation, launched_.plan)));
  Rank::Setup setup = rank_setup();
  setup.simulated = {.memory = *launched_.simulated_memory,
                     .simulation = simulation,
                     .kv_blocks = launched_.kv_blocks,
                     .pause = [this](Duration duration) { pause(duration); }};
  TRY(join_group(setup, nullptr));
  rank_ = TRY(Rank::load(std::move(setup), [this](const LoadProgress& at) { report(at); }));
  return {};
}

Status Worker::load() {
  if (launched_.simulated_memory) return load_simulated();
  if (!launched_.plan.cpus.empty()) {
    // Before anything is allocated. Unbound is slower, not wrong.
    if (const Status bound = bind_to_memory_node(launched_.plan.numa_node); !bound) {
      LOG_INFO("goes on without being bound to its memory node: {}", bound.error().message);
    }
  }
  launched_.backend.spin = launched_.threads_of_all_ranks <= usable_cpus();
  RankBackend made = TRY(make_rank_backend(launched_));
  if (made.context) {
    const DeviceMemory::State state = TRY(made.backend->device_memory()->state());
    TRY(confirm({*made.context, state.free}));
  }
  Rank::Setup setup = rank_setup();
  setup.context = made.context;
  TRY(join_group(setup, &made));
  setup.backend = std::move(made.backend);
  rank_ = TRY(Rank::load(std::move(setup), [this](const LoadProgress& at) { report(at); }));
  return {};
}

// While another replica packs the same.
Status Worker::wait_for_weights() {
  pause(kWeightsLook);
  if (drain_until_) {
    is_called_off_ = true;
    return unavailable("told to end while waiting for weights");
  }
  return check_group();
}

// What comes before it is kept: weights, and a socket to each peer in rank order.
Result<UniqueFd> Worker::receive_segment(Rank::Setup& setup) {
  while (true) {
    TaggedFd received = TRY_CONTEXT("get the ranks' shared segment: ",
                                    receive_descriptor(arguments_.parent_fd, kDescriptorDeadline));
    if (received.tag == "segment") return std::move(received.fd);
    if (received.tag == "weights") {
      setup.kept_weights = {.block = std::move(received.fd),
                            .wait = [this] { return wait_for_weights(); }};
    } else if (received.tag == "peer") {
      peers_.push_back(std::move(received.fd));
    } else {
      return internal_error(
          fmt::format("expected the descriptor 'segment' and got '{}'", received.tag));
    }
  }
}

Status Worker::join_group(Rank::Setup& setup, const RankBackend* of) {
  UniqueFd segment = TRY(receive_segment(setup));
  segment_memory_ = TRY(SharedBlock::map(std::move(segment), 1));
  segment_ = TRY(ReplicaSegment::attach(segment_memory_->bytes()));
  if (segment_->ranks() != static_cast<int>(launched_.shards.ranks.size())) {
    return internal_error(fmt::format("the shared segment is for {} ranks and the plan has {}",
                                      segment_->ranks(), launched_.shards.ranks.size()));
  }
  if (arguments_.has_own_process) {
    crash_handler_.emplace(
        TRY(CrashHandler::install(*segment_, static_cast<int>(arguments_.rank))));
  }
  TRY(segment_->hold_life(static_cast<int>(arguments_.rank)));
  mark(Activity::loading);
  RankCollective made = TRY(make_rank_collective({.launched = &launched_,
                                                  .segment = *segment_,
                                                  .segment_memory = segment_memory_->bytes(),
                                                  .rank = static_cast<int>(arguments_.rank),
                                                  .sockets = std::move(peers_),
                                                  .on = of}));
  setup.collective = std::move(made.collective);
  setup.shared_memory = made.memory;
  return {};
}

void Worker::mark(Activity activity) const {
  if (segment_) segment_->line(static_cast<int>(arguments_.rank)).activity.store(activity);
}

// On what the supervisor says, with a deadline.
void Worker::pause(Duration duration) {
  const TimePoint until = now() + duration;
  for (Duration left = duration; left > Duration(0); left = until - now()) {
    if (const std::optional<Received> received = control_.receive(left)) handle(received->message);
  }
}

void Worker::report(const LoadProgress& progress) {
  const TimePoint at = now();
  if (at - reported_ < kProgressInterval && progress.done < progress.total) return;
  reported_ = at;
  (void)take_control();  // answers pings; nothing else comes now
  const char* const phase = progress.waits_for_peers ? "waiting" : "loading";
  say(Progress{.phase = phase, .done = progress.done, .total = progress.total});
}

Status Worker::commit() {
  const Commit committed = TRY(await<Commit>("Commit"));
  if (committed.kv_blocks < 1 || committed.kv_blocks > launched_.kv_blocks) {
    return internal_error(fmt::format("told to make {} KV blocks; the plan has {}",
                                      committed.kv_blocks, launched_.kv_blocks));
  }
  if (committed.context_length < 1 || committed.context_length > launched_.limits.context_length) {
    return internal_error(fmt::format("told to take requests of {} tokens; the plan has {}",
                                      committed.context_length, launched_.limits.context_length));
  }
  launched_.limits.context_length = committed.context_length;
  TRY(rank_->engine().allocate_kv({.blocks = committed.kv_blocks,
                                   .sequences_max = launched_.running_requests_max,
                                   .prefault = launched_.options.kv_prefault == "on"}));
  for (const std::string& line :
       ledger_lines(launched_.plan, rank_->measure(), launched_.kv_blocks, committed.kv_blocks)) {
    LOG_INFO("{}{}", kKeptOnly, line);
  }
  mark(Activity::warming);
  say(Progress{.phase = "warming", .done = 0, .total = 1});
  const StepLimits& limits = rank_->engine().step_limits();
  const Bytes longest = step_bytes_max(limits) + kRingLengthBytes;
  if (has_peers() && longest > std::ssize(segment_->ring_memory())) {
    return does_not_fit(
        fmt::format("a step may take {} bytes in the ring between the ranks, which has {}; lower "
                    "--max-total-tokens or --max-running-requests",
                    longest, std::ssize(segment_->ring_memory())));
  }
  collectives_ = TRY(rank_->choose_table());
  return arguments_.rank == 0 ? start_leader(limits) : start_follower(limits);
}

Status Worker::start_leader(const StepLimits& limits) {
  if (has_peers()) {
    publisher_.emplace(*segment_, StepPublisher::Options{.spin = launched_.backend.spin});
  }
  Channel requests = TRY(Channel::bind(launched_.request_endpoint, kRequestSocketMode));
  leader_ = std::make_unique<Leader>(
      Leader::Parts{.engine = &rank_->engine(),
                    .collective = &rank_->collective(),
                    .publisher = publisher_ ? &*publisher_ : nullptr,
                    .requests = std::move(requests),
                    .limits = {.step = limits,
                               .context_length = launched_.limits.context_length,
                               .vocab = rank_->spec().vocab,
                               .waiting_max = kWaitingMax,
                               .prefix_cache = launched_.options.disable_radix_cache != "on"},
                    .budget = {.chunk_max = launched_.options.chunked_prefill_size,
                               .rows_max = limits.rows_max,
                               .step_time_max = launched_.options.step_time_max},
                    .decode_steps_max = launched_.options.num_continuous_decode_steps});
  return leader_->warm_up();
}

Status Worker::start_follower(const StepLimits& limits) {
  StepReceiver::Options options;
  options.rank = static_cast<int>(arguments_.rank);
  options.spin = launched_.backend.spin;
  receiver_.emplace(*segment_, options);
  follower_ = std::make_unique<Follower>(Follower::Parts{.engine = &rank_->engine(),
                                                         .collective = &rank_->collective(),
                                                         .receiver = &*receiver_,
                                                         .limits = limits});
  // The leader's first step may take a while: it waits for the last of the ranks.
  while (follower_->steps() == 0) {
    (void)take_control();
    if (TRY(follower_->follow(kIdleLook)) == Followed::stop) {
      return unavailable("the leader ended before its first step");
    }
  }
  return {};
}

Status Worker::serve_as_leader() {
  while (true) {
    bool any = take_control();
    any |= leader_->take_requests();
    if (drain_until_ && !leader_->idle() && now() >= *drain_until_) {
      leader_->abandon_all(unavailable("the replica was told to end and its time is up"));
    }
    if (!leader_->idle()) {
      TRY(leader_->step());
      continue;
    }
    if (drain_until_) return leader_->stop();
    mark(Activity::idle);
    TRY(check_group());
    // Sending may have used up an arrival's wake-up: sleep only after a look that found nothing.
    if (!any) wait_for_messages(has_peers() ? kIdleLook : kIdleLookAlone);
  }
}

Status Worker::serve_as_follower() {
  while (true) {
    (void)take_control();
    const Followed followed = TRY(follower_->follow(kIdleLook));
    if (followed == Followed::stop) return {};
    if (followed == Followed::nothing) mark(Activity::idle);
  }
}

Status Worker::check_group() const {
  if (segment_ && segment_->aborted()) return unavailable(segment_->abort_reason());
  return {};
}

void Worker::wait_for_messages(Duration timeout) const {
  std::array<pollfd, 2> fds{{{.fd = control_.fd(), .events = POLLIN, .revents = 0},
                             {.fd = leader_->request_fd(), .events = POLLIN, .revents = 0}}};
  const auto wait = std::chrono::ceil<milliseconds>(timeout).count();
  (void)::poll(fds.data(), fds.size(), static_cast<int>(wait));  // the caller looks in any case
}

bool Worker::take_control() {
  bool any = false;
  rejoin();
  while (const std::optional<Received> received = control_.receive()) {
    any = true;
    handle(received->message);
  }
  while (const std::optional<std::string> line = control_.take_refusal()) {
    LOG_WARNING("control socket: {}", *line);
  }
  return any || control_.has_more();
}

void Worker::handle(const Message& message) {
  if (const auto* ping = std::get_if<Ping>(&message)) {
    answer(*ping);
  } else if (const auto* live = std::get_if<SetLive>(&message)) {
    apply(*live);
  } else if (const auto* drain = std::get_if<Drain>(&message)) {
    drain_until_ = now() + milliseconds(std::max<std::int64_t>(drain->deadline_ms, 0));
    if (leader_) leader_->refuse_new("this replica is about to end; another one can take it");
  } else if (!std::holds_alternative<Load>(message) && !std::holds_alternative<Commit>(message)) {
    LOG_WARNING("control socket: a message that a worker has no use for now: ignored");
  }
}

void Worker::answer(const Ping& ping) {
  Pong pong;
  pong.sequence = ping.sequence;
  if (rank_ != nullptr) pong.kv_blocks_touched = rank_->engine().kv_blocks_touched();
  if (leader_) {
    pong.steps = leader_->counters().steps;
    pong.running = leader_->scheduler().running();
    pong.waiting = leader_->scheduler().waiting();
    pong.kv_blocks_used = leader_->scheduler().blocks_used();
    pong.prompt_tokens = leader_->counters().prompt_tokens;
    pong.cached_tokens = leader_->counters().cached_tokens;
    pong.generated_tokens = leader_->counters().generated_tokens;
  } else if (follower_) {
    pong.steps = follower_->steps();
  }
  say(pong);
}

void Worker::apply(const SetLive& live) {
  if (const std::optional<LogLevel> level = parse_log_level(live.log_level)) log_level(*level);
  if (live.step_time_max_ms <= 0) return;
  launched_.options.step_time_max = milliseconds(live.step_time_max_ms);
  if (leader_) leader_->set_step_time_max(milliseconds(live.step_time_max_ms));
}

void Worker::say_state(Message message) {
  state_said_ = message;
  say(message);
}

// To the supervisor somebody whose connection broke is a stranger, who says again who he is; what
// was on its way may be lost.
void Worker::rejoin() {
  if (!control_.take_break()) return;
  LOG_DEBUG("the connection to the supervisor broke; saying hello again");
  say(hello_);
  if (state_said_) say(*state_said_);
}

void Worker::say(const Message& message) {
  // Where the supervisor is gone, the death pipe ends this process.
  if (const Status sent = control_.send(message); !sent) LOG_WARNING("{}", sent.error().message);
}

}  // namespace

int run_worker(const WorkerArguments& arguments) {
  Result<Channel> control = Channel::connect(arguments.control);
  if (!control) {
    LOG_ERROR("{}", control.error().message);
    return exit_code(control.error().code);
  }
  Worker worker(arguments, std::move(*control));
  const Status ended = worker.run();
  if (ended || worker.is_called_off()) return 0;
  worker.fail(ended.error());
  return exit_code(ended.error().code);
}

}  // namespace plimsoll
