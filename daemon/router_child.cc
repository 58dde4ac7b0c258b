#include "daemon/router_child.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "shared/base/check.h"

namespace plimsoll {
namespace {

// The router sends its figures each second. Under a full processor it may be late.
constexpr Duration kSilenceMin = seconds(10);
// It loads nothing, and whoever connects meanwhile waits: however often it dies.
constexpr Duration kLongestDelay = milliseconds(500);

}  // namespace

const char* router_state_name(RouterState state) {
  switch (state) {
    case RouterState::idle:
      return "stopped";
    case RouterState::waiting:
    case RouterState::dying:
      return "restarting";
    case RouterState::starting:
      return "starting";
    case RouterState::listening:
      return "listening";
    case RouterState::draining:
      return "draining";
    case RouterState::failed:
      return "failed";
  }
  return "";
}

RouterChild::RouterChild(const Setup& setup)
    : setup_(setup), policy_(setup.seed, setup.starts_max) {}

void RouterChild::start(std::int64_t incarnation, TimePoint now, Actions& out) {
  CHECK(!is_alive_ && !is_ended_);
  incarnation_ = incarnation;
  ++starts_;
  state_ = RouterState::starting;
  is_alive_ = true;
  peer_.clear();
  stats_ = {};
  reports_ = false;
  words_ = {};
  last_sign_ = now;
  out.emplace_back(Spawn{{.kind = ChildId::Kind::router, .incarnation = incarnation_}});
}

void RouterChild::child_started(std::int64_t pid) {
  pid_ = pid;
  words_.pid = pid;
}

void RouterChild::hello(const std::string& peer, TimePoint now, Actions& out) {
  peer_ = peer;
  last_sign_ = now;
  if (state_ != RouterState::starting) return;
  out.emplace_back(Send{peer, setup_message()});
}

Message RouterChild::setup_message() const {
  const LaunchPlan& plan = *setup_.plan;
  return RouterSetup{.options = plan.options_json,
                     .model_path = plan.options.values.model,
                     .served_model_name = plan.served_model_name,
                     .context_length = plan.context_length};
}

void RouterChild::use_plan(const LaunchPlan& plan, Actions& out) {
  setup_.plan = &plan;
  if (is_alive_ && !peer_.empty()) out.emplace_back(Send{peer_, setup_message()});
}

void RouterChild::said(const Message& message, TimePoint now, Actions& out) {
  last_sign_ = now;
  if (const auto* fault = std::get_if<Fault>(&message)) {
    if (!words_.fault) words_.fault = Error{code_from_name(fault->code), fault->message};
    if (state_ == RouterState::dying && !is_alive_) buried(now, out);
  } else if (const auto* stats = std::get_if<RouterStats>(&message)) {
    stats_ = *stats;
    reports_ = true;
  } else if (std::holds_alternative<Listening>(message)) {
    if (state_ != RouterState::starting) return;
    state_ = RouterState::listening;
    policy_.became_ready(now);
  }
}

void RouterChild::spawn_failed(const Error& error, TimePoint now, Actions& out) {
  words_.verdict = "could not be started: " + error;
  is_alive_ = false;
  buried(now, out);
}

void RouterChild::child_exited(const Ending& ending, TimePoint now, Actions& out) {
  words_.ending = ending;
  is_alive_ = false;
  pid_ = 0;
  if (is_ended_ || peer_.empty() || !may_still_speak(words_)) return buried(now, out);
  state_ = RouterState::dying;
  bury_at_ = now + kLastWordsTime;
}

void RouterChild::buried(TimePoint now, Actions& out) {
  peer_.clear();
  if (is_ended_) {
    state_ = RouterState::idle;
    return;
  }
  last_cause_ = find_root_cause(std::span(&words_, 1));
  has_new_cause_ = true;
  // There is only one router: "rank 0" says nothing.
  last_cause_->message.replace(0, std::string_view("rank 0").size(), "router");
  const std::optional<Duration> delay = policy_.next_delay(last_cause_->code, now, kLongestDelay);
  std::string next = "it is not started again";
  if (delay) {
    state_ = RouterState::waiting;
    retry_at_ = now + *delay;
    next = fmt::format("starting again in {:.1f} s", to_seconds(*delay));
  } else {
    state_ = RouterState::failed;
  }
  out.emplace_back(Log{LogLevel::error, fmt::format("{}; {}", last_cause_->message, next)});
}

void RouterChild::kill(int signal, Actions& out) {
  if (!is_alive_) return;
  out.emplace_back(Kill{{.kind = ChildId::Kind::router, .incarnation = incarnation_}, signal});
}

std::optional<RootCause> RouterChild::take_cause() {
  if (!std::exchange(has_new_cause_, false)) return std::nullopt;
  return last_cause_;
}

void RouterChild::drain(DrainHow how, Actions& out) {
  is_ended_ = true;
  if (!is_alive_) {
    state_ = RouterState::idle;
    return;
  }
  state_ = RouterState::draining;
  if (peer_.empty()) {
    kill(SIGTERM, out);
  } else {
    out.emplace_back(Send{peer_, Drain{how.deadline.count(), how.is_followed}});
  }
}

void RouterChild::end(int signal, Actions& out) {
  is_ended_ = true;
  state_ = is_alive_ ? RouterState::draining : RouterState::idle;
  kill(signal, out);
}

void RouterChild::condemn(const Error& verdict, TimePoint now, Actions& out) {
  if (!is_alive_ || state_ == RouterState::dying || is_ended_) return;
  words_.verdict = verdict;
  words_.first_sign = now;
  state_ = RouterState::dying;
  kill(SIGKILL, out);
}

void RouterChild::tick(TimePoint now, Actions& out) {
  const std::optional<TimePoint> deadline = next_deadline();
  if (!deadline || now < *deadline || state_ == RouterState::waiting) return;
  if (state_ == RouterState::dying) return buried(now, out);
  // A deadline that passed long ago was not looked at: the daemon itself was paused.
  if (now - *deadline > seconds(2)) {
    last_sign_ = now;
    return;
  }
  condemn(timed_out(fmt::format("{} for {:.0f} s",
                                state_ == RouterState::starting ? "did not start to listen"
                                                                : "hangs: it has said nothing",
                                to_seconds(now - last_sign_))),
          now, out);
}

std::optional<TimePoint> RouterChild::next_deadline() const {
  const Options& options = setup_.plan->options.values;
  switch (state_) {
    case RouterState::starting:
      return last_sign_ + options.load_timeout;
    case RouterState::listening:
      if (!reports_) return std::nullopt;
      return last_sign_ + std::max<Duration>(options.stall_timeout, kSilenceMin);
    case RouterState::waiting:
      return retry_at_;
    case RouterState::dying:
      if (is_alive_) return std::nullopt;
      return bury_at_;
    case RouterState::idle:
    case RouterState::draining:
    case RouterState::failed:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace plimsoll
