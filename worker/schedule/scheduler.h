// Scheduler: continuous batching with chunked prefill: which tokens of which requests run next.
//
// Pure: plain data in and out, no clock. Order is first come, first served. A step has first one
// row of every running sequence that decodes, then chunks of running prompts, then new ones as far
// as slots, blocks and rows allow. So that first tokens come soon, a step ends with the prompt that
// it completes, once it has enough rows to be efficient, and of the steps within one budget only
// the last decodes: answers wait for a token no longer than a step of the whole budget. Blocks of a
// prompt are taken at admission, those of generated tokens one by one; when none is available the
// youngest sequence lets go of all of its blocks, waits at the head of the queue and computes again
// later what was not kept. The oldest is never the one. Tokens whose blocks the prefix cache has
// are not computed at all.
//
// Between plan_step() (or plan_next_decode()) and finish_step() a step is under way, and neither
// add() nor cancel() may be called.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "shared/base/result.h"
#include "worker/kv/prefix_cache.h"
#include "worker/schedule/sequence.h"
#include "worker/schedule/step_plan.h"

namespace plimsoll {

struct SchedulerLimits {
  StepLimits step;  // sequences_max: running requests; at most rows_max and logit_rows_max
  Tokens context_length = 0;
  std::int64_t vocab = 0;
  std::int64_t waiting_max = 0;
  bool prefix_cache = true;
};

// What a step does for one sequence.
struct StepEntry {
  const Sequence* sequence = nullptr;
  Tokens position = 0;  // of its first row
  Tokens rows = 0;
  std::int64_t logits_begin = 0;  // its logits are rows [begin, begin + count) of the step's
  std::int64_t logits_count = 0;
  bool samples = false;  // the last of them decides the next token
};

// By entry: the token that was sampled, or that there is none.
struct StepOutcome {
  std::int32_t token = -1;
  bool failed = false;  // the sequence ends with an error
};

struct Ended {
  std::uint64_t id = 0;
  Finish finish = Finish::none;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  struct Added {
    std::uint64_t id = 0;
    bool done = false;  // there is nothing to compute; the id means nothing
  };
  // What another replica has done of the request already; its tokens are computed again here.
  struct Continuation {
    std::span<const std::int64_t> emitted;
    Tokens prompt_reported = 0;  // leading prompt rows whose log-probabilities were given out
  };
  // Errors: a request that can never run here (invalid, with the arithmetic); the queue is full
  // (unavailable).
  Result<Added> add(std::span<const std::int64_t> prompt, const Sampling& sampling,
                    const Continuation& continuation);
  Result<Added> add(std::span<const std::int64_t> prompt, const Sampling& sampling) {
    return add(prompt, sampling, Continuation{});
  }
  // Frees its blocks at once. False where no such sequence is left.
  bool cancel(std::uint64_t id);

  // The next step, of about `budget` rows: prompts get what decoding leaves, and at least
  // kStepRowsMin rows, but never more than limits.step. Empty when nothing is left to do.
  const StepPlan& plan_step(Tokens budget);
  // A step of one more token for each sequence of the step before, where that was all that it did,
  // no prompt was among them, none ended and each finds room without another's blocks; else
  // nullptr, and plan_step() is next. Whoever waits goes on waiting.
  const StepPlan* plan_next_decode();
  std::span<const StepEntry> entries() const { return entries_; }
  Tokens prompt_rows() const {
    return prompt_rows_;
  }  // of the last step: all but those that decode
  // Appends each ended sequence, in order of entries. REQUIRES: one outcome an entry.
  void finish_step(std::span<const StepOutcome> outcomes, std::vector<Ended>& ended);

  bool idle() const { return running_.empty() && waiting_.empty(); }
  std::int64_t running() const { return std::ssize(running_); }
  std::int64_t waiting() const { return std::ssize(waiting_); }
  Blocks blocks_used() const { return cache_.held(); }  // by requests that run
  Blocks blocks_idle() const { return cache_.idle(); }  // kept for later requests
  Blocks blocks() const { return cache_.total(); }
  std::int64_t preemptions() const { return preemptions_; }
  const SchedulerLimits& limits() const { return limits_; }

 private:
  using Owned = std::unique_ptr<Sequence>;

  Status check(std::span<const std::int64_t> prompt, const Sampling& sampling) const;
  Status check_ids(std::span<const std::int64_t> ids, const char* where) const;
  bool take_blocks_for_next_token(std::size_t index);
  void preempt_youngest();
  void begin_step();
  bool is_decode_of_all() const;
  // Rows that a step's prompts may have.
  struct Room {
    Tokens left = 0;
    Tokens enough = 0;  // of prompts, for a step to end with one that is complete
  };
  void plan_decodes();
  void plan_prefills(Room& room);
  void admit(Room& room);
  void add_prompt_rows(const Sequence& sequence, Tokens rows, Room& room);
  bool can_hold(std::size_t decodes, Tokens interval, Tokens enough) const;
  void drop_decodes(std::size_t decodes);
  // Returns the rows that it added: fewer than asked where logit rows run out.
  Tokens add_entry(const Sequence& sequence, Tokens rows);
  Tokens rows_within_logits(const Sequence& sequence, Tokens rows) const;
  Finish finish_entry(const StepEntry& entry, const StepOutcome& outcome, Sequence& sequence);

  SchedulerLimits limits_;
  PrefixCache cache_;
  std::vector<Owned> running_;  // oldest first
  std::deque<Owned> waiting_;   // oldest first, all younger than those that run
  StepPlan plan_;
  std::vector<StepEntry> entries_;
  bool step_under_way_ = false;
  bool preempted_in_step_ = false;
  Tokens prompt_rows_ = 0;
  // Of steps that had only prompts while answers waited; none counts for less than rows enough.
  Tokens rows_since_decode_ = 0;
  bool may_decode_on_ = false;  // the last step was of one answer's token for each that runs
  std::uint64_t next_id_ = 1;
  std::int64_t preemptions_ = 0;
};

}  // namespace plimsoll
