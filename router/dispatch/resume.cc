#include "router/dispatch/resume.h"

#include <algorithm>
#include <utility>

#include "shared/base/check.h"

namespace plimsoll {

Resumable::Resumable(Generate generate) : generate_(std::move(generate)) {
  CHECK(generate_.id < kRequestIdsEnd);
}

Generate Resumable::next_attempt() {
  // Far more than losses_max allows, so that the number of an attempt never comes back.
  CHECK(attempts_ < 64);
  generate_.id = request_id(generate_.id) |
                 (static_cast<std::uint64_t>(attempts_++) << static_cast<unsigned>(kAttemptShift));
  return generate_;
}

std::int64_t Resumable::prefill_tokens() const {
  return static_cast<std::int64_t>(generate_.prompt.size() + generate_.emitted.size());
}

std::int64_t Resumable::tokens_left() const {
  return std::max<std::int64_t>(generate_.sampling.max_tokens - std::ssize(generate_.emitted), 0);
}

void Resumable::note(const TokenEvent& event) {
  generate_.emitted.insert(generate_.emitted.end(), event.tokens.begin(), event.tokens.end());
  generate_.prompt_reported += static_cast<std::int64_t>(event.prompt_logprobs.size());
}

bool Resumable::lost(const ResumeLimits& limits) { return ++losses_ <= limits.losses_max; }

bool Resumable::died(const ResumeLimits& limits) {
  emitted_at_last_death_ = generate_.emitted.size();
  return faults_ + ++unjudged_ >= limits.faults_max;
}

Resumable::Fate Resumable::judged(bool by_fault, bool was_alone, const ResumeLimits& limits) {
  --unjudged_;
  if (by_fault) ++faults_;
  if (by_fault && was_alone && is_suspect(limits)) return Fate::never;
  if (is_suspect(limits)) return Fate::alone;
  return faults_ + unjudged_ >= limits.faults_max ? Fate::waits : Fate::again;
}

bool Resumable::is_clear(const ResumeLimits& limits) const {
  return !was_cleared_ &&
         std::ssize(generate_.emitted) >=
             static_cast<std::int64_t>(emitted_at_last_death_) + limits.tokens_to_clear;
}

// Not forgotten altogether: one more death beside others and it runs alone again.
void Resumable::clear(const ResumeLimits& limits) {
  faults_ = limits.faults_max - 1;
  was_cleared_ = true;
}

std::vector<LossLedger::Verdict> LossLedger::judge(const std::vector<ReplicaInfo>& table) {
  std::vector<Verdict> verdicts;
  std::erase_if(losses_, [&](Loss& loss) {
    const auto info = std::ranges::find(table, loss.replica, &ReplicaInfo::replica);
    const bool may_be_told = info != table.end() && info->incarnation == loss.incarnation &&
                             info->ended_incarnation < loss.incarnation;
    if (may_be_told) return false;
    const bool by_fault =
        info != table.end() && info->ended_by_fault && info->ended_incarnation == loss.incarnation;
    verdicts.push_back({std::move(loss), by_fault});
    return true;
  });
  return verdicts;
}

}  // namespace plimsoll
