// RouterChild: the router process of a deployment: started, set up, watched, started again. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/events.h"
#include "daemon/restart_policy.h"
#include "daemon/root_cause.h"

namespace plimsoll {

enum class RouterState { idle, waiting, starting, listening, draining, dying, failed };
const char* router_state_name(RouterState state);

class RouterChild {
 public:
  struct Setup {
    const LaunchPlan* plan;  // outlives the router
    std::uint64_t seed = 0;
    int starts_max = 1;
  };
  explicit RouterChild(const Setup& setup);

  void start(std::int64_t incarnation, TimePoint now, Actions& out);
  void child_started(std::int64_t pid);
  void spawn_failed(const Error& error, TimePoint now, Actions& out);
  void child_exited(const Ending& ending, TimePoint now, Actions& out);
  void hello(const std::string& peer, TimePoint now, Actions& out);
  void said(const Message& message, TimePoint now, Actions& out);
  void tick(TimePoint now, Actions& out);

  struct DrainHow {
    milliseconds deadline{0};
    bool is_followed = false;  // by another router on the same socket
  };
  void drain(DrainHow how, Actions& out);
  // Its limits are those of that plan, which outlives it.
  void use_plan(const LaunchPlan& plan, Actions& out);
  void end(int signal, Actions& out);  // for good: no restart
  // It hangs, by somebody's finding: killed and started again.
  void condemn(const Error& verdict, TimePoint now, Actions& out);

  RouterState state() const { return state_; }
  bool has_process() const { return is_alive_; }
  const std::string& peer() const { return peer_; }  // empty before Hello
  std::int64_t pid() const { return pid_; }
  std::int64_t incarnation() const { return incarnation_; }
  std::int64_t restarts() const { return starts_ > 0 ? starts_ - 1 : 0; }
  const RouterStats& stats() const { return stats_; }
  const std::optional<RootCause>& last_cause() const { return last_cause_; }
  std::optional<RootCause> take_cause();  // each one once
  TimePoint retry_at() const { return retry_at_; }
  std::optional<TimePoint> next_deadline() const;

 private:
  Message setup_message() const;
  void kill(int signal, Actions& out);
  void buried(TimePoint now, Actions& out);

  Setup setup_;
  RestartPolicy policy_;
  RouterState state_ = RouterState::idle;
  bool is_alive_ = false;
  bool is_ended_ = false;
  std::int64_t pid_ = 0;
  std::int64_t incarnation_ = 0;
  std::int64_t starts_ = 0;
  std::string peer_;
  RouterStats stats_;
  TimePoint last_sign_;
  bool reports_ = false;  // it has begun to send its figures each second
  TimePoint retry_at_;
  TimePoint bury_at_;  // when it is gone, but its last words may follow
  LastWords words_;
  std::optional<RootCause> last_cause_;
  bool has_new_cause_ = false;
};

}  // namespace plimsoll
