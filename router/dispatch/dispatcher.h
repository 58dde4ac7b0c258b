// Dispatcher: which replica runs which request; what waits, and what becomes of it when a replica
// is lost. Pure: events in, actions out, in order.
//
// A request goes to the ready replica with the least outstanding work. Few requests at a time wait
// at a leader; the others wait here, first come first served, so that they can go to whichever
// replica is free first and are not lost with one. A request that has no token yet moves to another
// replica (or waits for one) when its own is lost; one that has tokens ends with an error.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "router/dispatch/replica_table.h"
#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/control/messages.h"

namespace plimsoll {

struct DispatchLimits {
  std::int64_t queued_max = 1024;           // waiting here
  std::optional<std::int64_t> running_max;  // of a replica, where it is an option: all sent at once
  std::int64_t unstarted_max = 16;          // sent to a replica without a token yet, else
  int attempts_max = 3;                     // replicas that one request may be lost with
  Duration no_replica_max = seconds(30);    // to wait for any replica to become ready
  Duration queue_max = std::chrono::hours(1);  // to wait in all
};

struct SendGenerate {
  std::int64_t replica = 0;
  Generate generate;
};
struct SendCancel {
  std::int64_t replica = 0;
  std::uint64_t id = 0;
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
using DispatchAction =
    std::variant<SendGenerate, SendCancel, Deliver, Fail, ConnectLeader, DropLeader>;

class Dispatcher {
 public:
  explicit Dispatcher(DispatchLimits limits) : limits_(limits) {}

  void set_queued_max(std::int64_t queued_max) { limits_.queued_max = queued_max; }
  // Whether `count` more requests can be taken; else why not. Code::unavailable.
  Status admit(std::int64_t count) const;

  // REQUIRES: an id never used before.
  void submit(Generate generate, TimePoint now);
  // To that replica or none, past the queue (a probe). False where it isn't ready.
  bool submit_to(std::int64_t replica, Generate generate, TimePoint now);
  void cancel(std::uint64_t id);
  void tokens(std::int64_t replica, StepTokens&& step, TimePoint now);
  void replicas(const Replicas& message, TimePoint now);
  // The message of a SendGenerate could not be sent.
  void send_failed(std::uint64_t id, const Error& error);
  void tick(TimePoint now);
  std::vector<DispatchAction> take_actions();

  const ReplicaTable& table() const { return table_; }
  const std::string& deployment_state() const { return deployment_state_; }
  const std::string& reason() const { return reason_; }
  std::int64_t queued() const { return static_cast<std::int64_t>(queue_.size()); }
  std::int64_t open() const { return static_cast<std::int64_t>(requests_.size()); }

 private:
  struct Request {
    Generate generate;
    std::vector<std::int64_t> emitted;  // what a resume continues from
    std::optional<std::int64_t> replica;
    bool pinned = false;
    bool started = false;
    int attempts = 0;
    TimePoint arrived;
    TimePoint waiting_since;
  };
  using Requests = std::map<std::uint64_t, Request>;

  void send(std::uint64_t id, Request& request, std::int64_t replica);
  void dispatch_queue();
  std::optional<std::int64_t> best_replica() const;
  bool has_room(const Replica& replica) const;
  void event(std::int64_t replica_id, Replica& replica, TokenEvent&& event, TimePoint now);
  void mark_started(Replica& replica, Request& request) const;
  void forget(Requests::iterator found);
  void lose(std::uint64_t id, const std::string& why, TimePoint now);
  void fail(std::uint64_t id, Error error);

  DispatchLimits limits_;
  ReplicaTable table_;
  std::string deployment_state_ = "loading";
  std::string reason_;
  bool ever_ready_ = false;
  TimePoint none_ready_since_;
  Requests requests_;
  std::deque<std::uint64_t> queue_;  // oldest first
  std::vector<DispatchAction> actions_;
};

}  // namespace plimsoll
