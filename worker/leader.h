// Leader: rank 0 of a replica: requests in, one step after the other, tokens out.
//
// One thread. Cancelling and admitting happen between turns of one step, or of several that only
// decode (--num-continuous-decode-steps). Everything that a turn produced goes to a router in one
// message. When a router is gone its requests are cancelled.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/control/channel.h"
#include "worker/collective/collective.h"
#include "worker/sample/sampler.h"
#include "worker/schedule/scheduler.h"
#include "worker/schedule/step_budget.h"
#include "worker/schedule/step_ring.h"
#include "worker/step_runner.h"

namespace plimsoll {

// How many may wait for a replica; the router's own queue is what bounds them in practice.
constexpr std::int64_t kWaitingMax = 4096;

struct LeaderCounters {
  std::int64_t steps = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of them: found in the prefix cache
  std::int64_t generated_tokens = 0;
};

class Leader {
 public:
  struct Parts {
    StepRunner* engine = nullptr;  // with KV
    Collective* collective = nullptr;
    StepPublisher* publisher = nullptr;  // nullptr: there are no other ranks
    Channel requests;                    // bound
    SchedulerLimits limits;
    StepBudget::Options budget;
    std::int64_t decode_steps_max = 1;  // in a row, before anything else is looked at
  };
  // REQUIRES: what is pointed at outlives the leader.
  explicit Leader(Parts parts);

  // A first step through all ranks, of one block of tokens; nothing of it stays.
  Status warm_up();

  int request_fd() const { return parts_.requests.fd(); }
  // Takes some of what has come in; false where nothing had.
  bool take_requests();
  // One step, or several where all of them only decode, for at most the longest time of a step;
  // and their message. REQUIRES: !idle(). Errors: a peer rank is gone.
  Status step();
  bool idle() const { return scheduler_.idle(); }

  // From now on requests are refused; those that are here go on.
  void refuse_new(std::string why) { refusal_ = std::move(why); }
  // Ends every request with an error event.
  void abandon_all(const Error& why);
  // Tells the other ranks that no step follows, and waits until they know.
  Status stop();

  void set_step_time_max(Duration step_time_max);
  const LeaderCounters& counters() const { return counters_; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Client {
    std::string peer;
    std::uint64_t id = 0;  // the router's
  };

  // What a turn has to say about one sequence.
  struct Output {
    std::uint64_t sequence = 0;
    TokenEvent event;
    std::optional<Error> error;  // that it ended with
  };

  void handle(const std::string& peer, const Generate& generate);
  void handle(const std::string& peer, const Cancel& cancel);
  void send(const std::string& peer, std::vector<TokenEvent> events);
  void forget_peer(const std::string& peer);
  Result<StepRunner::Sampled> run_on_all_ranks(const StepPlan& plan);
  void choose_samples();
  // Runs the step and adds to `outputs`, which is empty or has one for each entry.
  Status run_step(const StepPlan& plan, std::vector<Output>& outputs, std::vector<Ended>& ended);
  // Log-probabilities and the next token out of the logits of one entry. Errors: the sampler's.
  Status read_entry(std::size_t index, const StepRunner::Sampled& sampled, TokenEvent& event,
                    StepOutcome& outcome);
  // Of the entry that ends a prompt, also into its event.
  void count(const StepEntry& entry, TokenEvent& event);
  void deliver(std::vector<Output>& outputs, const std::vector<Ended>& ended);
  std::span<const float> logits_row(TensorView logits, std::int64_t row) const;

  Parts parts_;
  Scheduler scheduler_;
  StepBudget budget_;
  Sampler sampler_;
  std::vector<cuda::RowSample> samples_;  // of the step that comes; none: by logits
  std::optional<std::string> refusal_;
  LeaderCounters counters_;
  std::map<std::uint64_t, Client> clients_;                                   // by sequence
  std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> sequences_;  // by peer and id
  std::vector<std::byte> message_;
};

}  // namespace plimsoll
