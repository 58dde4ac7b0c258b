// Dispatcher: which replica runs which request; what waits, and what becomes of it when a replica
// is lost. Pure: events in, actions out, in order.
//
// A request goes to the ready replica with the least outstanding work. Few requests at a time wait
// at a leader; the others wait here, first come first served, so that they can go to whichever
// replica is free first. When a replica is lost its requests go on at another one, or wait for one,
// from where the client has seen them (resume.h); only when that has failed too often, or no
// replica comes in time, do they end with an error. What was accepted once and lost its place comes
// on top of the queue's limit.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "router/dispatch/replica_table.h"
#include "router/dispatch/resume.h"
#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/control/messages.h"

namespace plimsoll {

struct DispatchLimits {
  std::int64_t queued_max = 1024;           // waiting here
  std::optional<std::int64_t> running_max;  // of a replica, where it is an option: all sent at once
  std::int64_t unstarted_max = 16;          // sent to a replica without a token yet, else
  Duration hold_max = seconds(60);          // to wait for any replica to become ready
  Duration queue_max = std::chrono::hours(1);  // to wait for room, at a stretch
  ResumeLimits resume;
};

struct SendGenerate {
  std::int64_t replica = 0;
  Generate generate;
};
struct SendCancel {
  std::int64_t replica = 0;
  std::uint64_t id = 0;  // as in its Generate
};
struct Deliver {
  TokenEvent event;
};
struct Fail {
  std::uint64_t id = 0;
  Error error;
};
struct ConnectLeader {
  std::int64_t replica = 0;
  std::int64_t incarnation = 0;
  std::string endpoint;
};
struct DropLeader {
  std::int64_t replica = 0;
};
// Requests that were on a replica which is gone, and go on elsewhere or when it is back.
struct Resume {
  std::int64_t replica = 0;
  std::int64_t requests = 0;
  std::string state;  // of the replica
};
using DispatchAction =
    std::variant<SendGenerate, SendCancel, Deliver, Fail, ConnectLeader, DropLeader, Resume>;

class Dispatcher {
 public:
  explicit Dispatcher(DispatchLimits limits) : limits_(limits) {}

  void set_queued_max(std::int64_t queued_max) { limits_.queued_max = queued_max; }
  void set_hold_max(Duration hold_max) { limits_.hold_max = hold_max; }
  void set_running_max(std::optional<std::int64_t> running_max) {
    limits_.running_max = running_max;
  }
  // Whether `count` more requests can be taken; else why not. Code::unavailable.
  Status admit(std::int64_t count) const;

  // REQUIRES: an id never used before, below kRequestIdsEnd.
  void submit(Generate generate, TimePoint now);
  // To that replica or none, past the queue (a probe). False where it isn't ready.
  bool submit_to(std::int64_t replica, Generate generate, TimePoint now);
  void cancel(std::uint64_t id);
  void tokens(std::int64_t replica, StepTokens&& step, TimePoint now);
  void replicas(const Replicas& message, TimePoint now);
  // The connection to that replica broke while it lives: what was on its way is lost.
  void disconnected(std::int64_t replica, TimePoint now);
  // The Generate with that id could not be sent.
  void send_failed(std::uint64_t wire_id, const Error& error, TimePoint now);
  // REQUIRES: a few times a second.
  void tick(TimePoint now);
  std::vector<DispatchAction> take_actions();

  const ReplicaTable& table() const { return table_; }
  const std::string& deployment_state() const { return deployment_state_; }
  const std::string& reason() const { return reason_; }
  std::int64_t queued() const {
    return static_cast<std::int64_t>(queue_.size() + suspects_.size() + held_.size());
  }
  std::int64_t open() const { return static_cast<std::int64_t>(requests_.size()); }
  std::int64_t tokens_left_max() const;

 private:
  // Where a request is that is on no replica.
  enum class Place { queue, suspects, awaits_verdict, pauses };
  struct Request {
    explicit Request(Generate generate) : resume(std::move(generate)) {}
    Resumable resume;
    std::optional<std::int64_t> replica;
    Place place = Place::queue;
    bool pinned = false;
    bool started = false;  // on its present replica
    TimePoint waiting_since;
  };
  using Requests = std::map<std::uint64_t, Request>;

  bool may_come() const;
  Error nobody() const;
  void send(std::uint64_t id, Request& request, std::int64_t replica);
  void dispatch();
  void run_suspect();
  std::optional<std::int64_t> best_replica() const;
  std::optional<std::int64_t> emptiest_replica() const;
  std::int64_t company(const Replica& replica) const;
  bool has_room(std::int64_t id, const Replica& replica) const;
  void event(std::int64_t replica_id, Replica& replica, TokenEvent&& event, TimePoint now);
  void mark_started(Replica& replica, Request& request) const;
  void take_from_replica(std::uint64_t id, Request& request);
  void take_from_queue(std::uint64_t id, const Request& request);
  void put(std::uint64_t id, Request& request, Place place);
  void forget(Requests::iterator found);
  void drop(std::uint64_t id, Error error);
  void lose(const ReplicaChanges::Lost& lost, TimePoint now);
  void judge(const LossLedger::Verdict& verdict);
  void refused(std::uint64_t id, const std::string& why, TimePoint now);
  void end_pauses();
  std::vector<std::uint64_t> waiting() const;
  void fail(std::uint64_t id, Error error);

  DispatchLimits limits_;
  ReplicaTable table_;
  std::string deployment_state_ = "loading";
  std::string reason_;
  TimePoint none_ready_since_;
  std::optional<TimePoint> held_since_;  // clients were not let in, and no replica is ready yet
  Requests requests_;
  LossLedger losses_;
  // Each oldest first. Held ones wait for a verdict, or pause after a refusal.
  std::deque<std::uint64_t> queue_;
  std::deque<std::uint64_t> suspects_;
  std::set<std::uint64_t> held_;
  std::optional<std::uint64_t> tested_;  // the suspect that runs
  std::optional<std::int64_t> bench_;    // the replica kept free of others for suspects
  std::vector<DispatchAction> actions_;
};

}  // namespace plimsoll
