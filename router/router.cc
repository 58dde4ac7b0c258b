#include "router/router.h"

#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <poll.h>
#include <unistd.h>

#include "router/http/server.h"
#include "router/service.h"
#include "router/setup.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/control/channel.h"

namespace plimsoll {
namespace {

namespace asio = boost::asio;
using asio::posix::stream_descriptor;
using boost::system::error_code;

constexpr Duration kSetupTimeMax = seconds(60);
constexpr Duration kSetupSlice = milliseconds(100);
constexpr Duration kListenerTimeMax = seconds(10);
constexpr Duration kTickEvery = milliseconds(250);
constexpr Duration kFlushTimeMax = seconds(1);

bool parent_is_gone(int parent_fd) {
  pollfd one{.fd = parent_fd, .events = POLLRDHUP, .revents = 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

LogLevel level_from(const std::string& name) {
  if (name == "debug") return LogLevel::debug;
  if (name == "warning") return LogLevel::warning;
  if (name == "error") return LogLevel::error;
  return LogLevel::info;
}

Hello hello_of(const RouterArguments& arguments) {
  return {.role = "router",
          .version = kProtocolVersion,
          .instance = arguments.instance,
          .pid = ::getpid(),
          .replica = 0,
          .rank = 0,
          .device = ""};
}

// The event loop. Handlers hold `this`; the object outlives every run of the io_context.
class Loop {
 public:
  Loop(RouterPlan plan, Channel control, const RouterArguments& arguments)
      : service_(std::move(plan.model), plan.service),
        control_(std::move(control)),
        hello_(hello_of(arguments)),
        control_wake_(io_),
        parent_wake_(io_),
        terminate_(io_),
        tick_timer_(io_),
        flush_timer_(io_),
        server_(io_, arguments.http,
                {.request =
                     [this](ExchangeId exchange, const HttpRequest& request) {
                       service_.http_request(exchange, request, now());
                       pump();
                     },
                 .hang_up =
                     [this](ExchangeId exchange) {
                       service_.hung_up(exchange, now());
                       pump();
                     },
                 .refused = [this](int status) { service_.refused(status); }}) {}

  Result<int> run(UniqueFd listener, const RouterArguments& arguments,
                  const std::vector<Message>& first) {
    TRY(server_.listen(std::move(listener)));
    TRY(watch(control_wake_, control_.fd()));
    TRY(watch(parent_wake_, arguments.parent_fd));
    TRY(control_.send(Listening{server_.url()}));
    LOG_INFO("listening on {}", server_.url());
    wait_for_control();
    wait_for_parent();
    if (arguments.ends_on_sigterm) {
      error_code ignored;
      terminate_.add(SIGTERM, ignored);
      wait_for_terminate();
    }
    service_.tick(now());  // with the first figures: from here on silence is a hang
    pump();
    tick();
    for (const Message& message : first) daemon_message(message);
    drain_control();
    io_.run();
    return exit_code_;
  }

 private:
  struct Leader {
    Leader(asio::io_context& io, Channel connected, std::int64_t incarnation_number)
        : channel(std::move(connected)), wake(io), incarnation(incarnation_number) {}
    Channel channel;
    stream_descriptor wake;
    std::int64_t incarnation;
    bool is_broken = false;  // since the last tick
  };

  // Asio closes what it watches, and these descriptors belong to others.
  static Status watch(stream_descriptor& wake, int fd) {
    const int copy = ::dup(fd);
    if (copy < 0) return internal_error("watch a socket: no descriptor is left");
    error_code error;
    wake.assign(copy, error);
    if (error) return internal_error("watch a socket: " + error.message());
    return {};
  }

  void wait_for_control() {
    control_wake_.async_wait(stream_descriptor::wait_read, [this](const error_code& error) {
      if (error) return;
      drain_control();
      wait_for_control();
    });
  }

  void wait_for_parent() {
    parent_wake_.async_wait(stream_descriptor::wait_read, [this](const error_code& error) {
      if (error) return;
      // Nothing is sent over the pair after the listener: readable means closed.
      LOG_WARNING("the daemon is gone; ending");
      exit_code_ = exit_code(Code::unavailable);
      io_.stop();
    });
  }

  void wait_for_leader(std::int64_t replica, Leader& leader) {
    leader.wake.async_wait(
        stream_descriptor::wait_read,
        [this, replica, incarnation = leader.incarnation](const error_code& error) {
          const auto found = leaders_.find(replica);
          if (error || found == leaders_.end() || found->second.incarnation != incarnation) return;
          drain_leader(replica);
          const auto still = leaders_.find(replica);
          if (still == leaders_.end() || still->second.incarnation != incarnation) return;
          wait_for_leader(replica, still->second);
        });
  }

  // Clients of a router that was started again wait in the socket until it knows the replicas:
  // otherwise it would refuse what it could serve in a moment. Where another router may still be
  // the one to serve them, they wait until that is decided.
  void daemon_message(const Message& message) {
    service_.daemon_message(message, now());
    const auto* table = std::get_if<Replicas>(&message);
    if (table == nullptr || table->deployment_state == "held" || is_accepting_) return;
    is_accepting_ = true;
    server_.start();
  }

  void wait_for_terminate() {
    terminate_.async_wait([this](const error_code& error, int) {
      if (error) return;
      service_.terminated(now());
      pump();
    });
  }

  void tick() {
    tick_timer_.expires_after(kTickEvery);
    tick_timer_.async_wait([this](const error_code& error) {
      if (error) return;
      service_.tick(now());
      find_broken_leaders();
      rejoin();
      pump();
      tick();
    });
  }

  // To the daemon somebody whose connection broke is a stranger, who says again who he is.
  void rejoin() {
    if (!control_.take_break()) return;
    for (const Message& words : {Message(hello_), Message(Listening{server_.url()})}) {
      if (const Status sent = control_.send(words); !sent) {
        LOG_WARNING("tell the daemon: {}", sent.error().message);
      }
    }
    control_dirty_ = true;
  }

  // A leader that has died breaks its connection too, and the daemon says so before the next tick.
  void find_broken_leaders() {
    std::vector<std::int64_t> broken;
    for (auto& [replica, leader] : leaders_) {
      if (std::exchange(leader.is_broken, leader.channel.take_break())) broken.push_back(replica);
    }
    for (const std::int64_t replica : broken) service_.disconnected(replica, now());
  }

  // ZeroMQ tells of new messages once: read until there is none.
  void drain_control() {
    control_dirty_ = true;
    pump();
    log_refusals(control_, "the daemon");
  }

  void drain_leader(std::int64_t replica) {
    dirty_.insert(replica);
    pump();
  }

  static void log_refusals(Channel& channel, const char* who) {
    while (const auto refusal = channel.take_refusal()) {
      LOG_WARNING("a message from {} was refused: {}", who, *refusal);
    }
  }

  // Does what the service decided, until nothing is left and every channel that we sent on is read
  // empty (a send may have swallowed its wake-up).
  void pump() {
    if (pumping_) return;
    pumping_ = true;
    for (;;) {
      pump_once();
      if (control_dirty_) {
        control_dirty_ = false;
        read_daemon();
        continue;
      }
      if (dirty_.empty()) break;
      const std::int64_t replica = *dirty_.begin();
      dirty_.erase(dirty_.begin());
      read_leader(replica);
    }
    pumping_ = false;
  }

  void read_daemon() {
    do {
      while (const auto received = control_.receive()) daemon_message(received->message);
    } while (control_.has_more());
  }

  void read_leader(std::int64_t replica) {
    for (;;) {
      const auto found = leaders_.find(replica);
      if (found == leaders_.end()) return;
      auto received = found->second.channel.receive();
      if (!received && found->second.channel.has_more()) continue;
      if (!received) return log_refusals(found->second.channel, "a leader");
      if (auto* step = std::get_if<StepTokens>(&received->message)) {
        service_.leader_tokens(replica, std::move(*step), now());
        pump_once();
      }
    }
  }

  void pump_once() {
    for (auto actions = service_.take_actions(); !actions.empty();
         actions = service_.take_actions()) {
      for (RouterAction& action : actions) {
        std::visit([this](auto& one) { act(one); }, action);
      }
    }
  }

  void act(const Respond& action) { server_.respond(action.exchange, action.response); }
  void act(const BeginStream& action) { server_.begin_stream(action.exchange, action.head); }
  void act(const StreamData& action) { server_.write_stream(action.exchange, action.data); }
  void act(const EndStream& action) { server_.end_stream(action.exchange, action.keep_alive); }

  void act(const ToDaemon& action) {
    const Status sent = control_.send(action.message);
    control_dirty_ = true;
    if (!sent) LOG_WARNING("tell the daemon: {}", sent.error().message);
  }

  void act(const ToLeader& action) {
    const auto* generate = std::get_if<Generate>(&action.message);
    const auto found = leaders_.find(action.replica);
    Status sent = unavailable("its leader is not connected");
    if (found != leaders_.end()) {
      sent = found->second.channel.send(action.message);
      dirty_.insert(action.replica);
    }
    if (sent) return;
    if (generate != nullptr) {
      service_.send_failed(generate->id, sent.error(), now());
    } else {
      LOG_WARNING("tell replica {}: {}", action.replica, sent.error().message);
    }
  }

  void act(const ConnectLeader& action) {
    leaders_.erase(action.replica);
    auto channel = Channel::connect(action.endpoint);
    if (!channel) {
      LOG_ERROR("connect to replica {}: {}", action.replica, channel.error().message);
      return;
    }
    const auto [place, added] =
        leaders_.try_emplace(action.replica, io_, std::move(*channel), action.incarnation);
    (void)place->second.channel.take_break();  // from here on it is watched
    if (const Status status = watch(place->second.wake, place->second.channel.fd()); !status) {
      LOG_ERROR("connect to replica {}: {}", action.replica, status.error().message);
      leaders_.erase(place);
      return;
    }
    dirty_.insert(action.replica);
    wait_for_leader(action.replica, place->second);
  }

  void act(const DropLeader& action) { leaders_.erase(action.replica); }
  void act(const SetLogLevel& action) { log_level(level_from(action.level)); }

  void act(const EndConnections&) { server_.end_connections(); }

  void act(const StopAccepting&) {
    server_.stop_accepting([this] {
      service_.all_answered(now());
      pump();
    });
  }

  void act(const Exit&) {
    LOG_INFO("drained; ending");
    server_.finish([this] { io_.stop(); });
    flush_timer_.expires_after(kFlushTimeMax);
    flush_timer_.async_wait([this](const error_code& error) {
      if (!error) io_.stop();
    });
  }

  asio::io_context io_{1};
  Service service_;
  Channel control_;
  Hello hello_;
  stream_descriptor control_wake_;
  stream_descriptor parent_wake_;
  asio::signal_set terminate_;
  asio::steady_timer tick_timer_;
  asio::steady_timer flush_timer_;
  HttpServer server_;
  std::map<std::int64_t, Leader> leaders_;
  std::set<std::int64_t> dirty_;  // leaders whose channel must be read empty
  bool control_dirty_ = false;
  bool is_accepting_ = false;
  bool pumping_ = false;
  int exit_code_ = 0;
};

// Other words may come before it (a first table of replicas, a live change): they are kept.
struct FirstWords {
  RouterSetup setup;
  std::vector<Message> others;
};

Result<FirstWords> wait_for_setup(Channel& control, int parent_fd) {
  FirstWords words;
  const TimePoint deadline = now() + kSetupTimeMax;
  while (now() < deadline) {
    auto received = control.receive(kSetupSlice);
    if (!received) {
      if (parent_is_gone(parent_fd)) return unavailable("start the router: the daemon is gone");
      continue;
    }
    if (auto* setup = std::get_if<RouterSetup>(&received->message)) {
      words.setup = std::move(*setup);
      return words;
    }
    words.others.push_back(std::move(received->message));
  }
  return timed_out("start the router: no setup came from the daemon within 60 s");
}

}  // namespace

Result<int> run_router(const RouterArguments& arguments) {
  Channel control = TRY(Channel::connect(arguments.control_endpoint));
  (void)control.take_break();  // from here on it is watched
  TRY(control.send(hello_of(arguments)));
  FirstWords words = TRY(wait_for_setup(control, arguments.parent_fd));
  auto plan = plan_router(words.setup);
  if (!plan) {
    (void)control.send(Fault{code_name(plan.error().code), plan.error().message});
    return std::move(plan.error());
  }
  log_level(level_from(plan->options.log_level));
  if (!plan->template_error.empty()) {
    LOG_WARNING("chat is refused, no usable chat template: {}", plan->template_error);
  }
  TaggedFd listener = TRY(receive_descriptor(arguments.parent_fd, kListenerTimeMax));
  if (listener.tag != "listener") {
    return internal_error("start the router: a descriptor \"" + listener.tag +
                          "\" came, not the listener");
  }
  Loop loop(std::move(*plan), std::move(control), arguments);
  return loop.run(std::move(listener.fd), arguments, words.others);
}

}  // namespace plimsoll
