// Resume: what the router keeps of a request so that another replica can go on with it, and what
// the loss of a replica makes of the requests that were on it. Pure.
//
// A token depends on the prompt, the seed, the options and the tokens before it, and on nothing
// else (batch invariance; sampling is keyed by seed and position). So prompt, seed and emitted ids
// are a continuation whose tokens are those that would have come; what the client has seen (stop
// strings, scores, usage) stays with its ChoiceStream and is fed on.
//
// A request that ends its worker would end the next one too. Only faults of a worker itself count,
// never a kill from outside. After the second one with a request on board it is a suspect: suspects
// run one at a time, alone on a replica. One that dies alone is not tried again; one that gets past
// the place where it died goes back to the others, once: a second time it stays alone to its end.
#pragma once

#include <cstdint>
#include <vector>

#include "shared/control/messages.h"

namespace plimsoll {

struct ResumeLimits {
  int losses_max = 8;  // replicas that one request may be lost with
  int faults_max = 2;  // of them by a fault of the worker itself, before it runs alone
  // That a suspect has to emit alone to be cleared: more than a leader is ahead of what the router
  // had seen when it died.
  std::int64_t tokens_to_clear = 16;
};

// What each Generate of a request carries as its id: the request's id and how often it was sent, so
// that words of an earlier one are not taken for those of a later one.
constexpr int kAttemptShift = 58;
constexpr std::uint64_t kRequestIdsEnd = std::uint64_t{1} << kAttemptShift;
constexpr std::uint64_t request_id(std::uint64_t wire_id) { return wire_id & (kRequestIdsEnd - 1); }

class Resumable {
 public:
  // REQUIRES: generate.id < kRequestIdsEnd.
  explicit Resumable(Generate generate);

  // The rest of the request, for another leader. Each call is an attempt.
  Generate next_attempt();
  bool is_current(std::uint64_t wire_id) const { return generate_.id == wire_id; }
  std::uint64_t wire_id() const { return generate_.id; }
  // Tokens that have to be computed before there is a new one.
  std::int64_t prefill_tokens() const;
  // That may still come, at most.
  std::int64_t tokens_left() const;

  // The client was given this.
  void note(const TokenEvent& event);

  // Its replica is gone or would not have it. False: that was once too often.
  bool lost(const ResumeLimits& limits);
  int losses() const { return losses_; }

  // The replica died, of a cause that is not known yet: whether to wait for it before it is sent
  // again. One more fault would make it a suspect.
  bool died(const ResumeLimits& limits);
  enum class Fate { again, waits, alone, never };
  // The cause of one of its deaths.
  Fate judged(bool by_fault, bool was_alone, const ResumeLimits& limits);
  bool is_suspect(const ResumeLimits& limits) const { return faults_ >= limits.faults_max; }
  int faults() const { return faults_; }
  // A suspect that runs alone has come past the place where it died.
  bool is_clear(const ResumeLimits& limits) const;
  void clear(const ResumeLimits& limits);

 private:
  Generate generate_;
  int attempts_ = 0;
  int losses_ = 0;
  int faults_ = 0;
  int unjudged_ = 0;  // deaths whose cause is not known yet
  bool was_cleared_ = false;
  std::size_t emitted_at_last_death_ = 0;
};

// Which requests were on which replica when it died, until the daemon says of what.
class LossLedger {
 public:
  struct Loss {
    std::int64_t replica = 0;
    std::int64_t incarnation = 0;
    std::vector<std::uint64_t> requests;
  };
  struct Verdict {
    Loss loss;
    bool by_fault = false;
  };
  void add(Loss loss) { losses_.push_back(std::move(loss)); }
  // Those whose cause this table tells; it is told before the replica's next start, or never.
  std::vector<Verdict> judge(const std::vector<ReplicaInfo>& table);
  std::size_t size() const { return losses_.size(); }

 private:
  std::vector<Loss> losses_;  // at most a few a replica: each is judged before the next start
};

}  // namespace plimsoll
