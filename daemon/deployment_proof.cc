// The part of the deployment that has replicas prove themselves with a real token, through the
// router, before they get requests: all of them at first, later each that was started again or
// takes the place of another. The router knows one probe at a time.

#include <algorithm>
#include <utility>

#include "daemon/deployment.h"
#include "daemon/root_cause.h"

namespace plimsoll {
namespace {

constexpr Duration kProbeTime = seconds(60);
constexpr Duration kProbeRetry = milliseconds(500);
constexpr int kProbesMax = 5;
constexpr int kProofsMax = 3;

}  // namespace

// ---- all replicas ----

void Deployment::probe(TimePoint now, Actions& out) {
  if (proof_.sequence != 0 || (change_ && change_->proof.sequence != 0)) return;
  if (is_probing_ && now >= probe_at_) {
    probe_result({probe_sequence_, false, "no answer in time"}, now, out);
  }
  if (stop_phase_ != StopPhase::none) return;  // it was the last try
  if (is_probing_ || (probes_failed_ > 0 && now < probe_at_)) return;
  is_probing_ = true;
  probe_at_ = now + kProbeTime;
  out.emplace_back(Send{router_.peer(), Probe{++probe_sequence_}});
}

void Deployment::probe_result(const ProbeResult& result, TimePoint now, Actions& out) {
  if (proof_result(result, now, out)) return;
  if (!is_probing_ || result.sequence != probe_sequence_) return;
  is_probing_ = false;
  if (result.ok) {
    is_proved_ = true;
    probes_failed_ = 0;
    if (has_served_) return;
    for (Cohort& cohort : cohorts_) cohort.prove();
    return;
  }
  ++probes_failed_;
  probe_at_ = now + kProbeRetry;
  if (probes_failed_ > kProbesMax) return;  // it has been said
  out.emplace_back(Log{LogLevel::warning, "a test request was not answered: " + result.message});
  const Error error =
      probe_error(result.code, "the deployment does not answer a test request: " + result.message);
  const bool is_last = probes_failed_ == kProbesMax || is_permanent(error.code);
  if (is_last && !has_served_) fail(error, now, out);
}

// ---- one replica ----

void Deployment::prove(Proof& proof, std::int64_t replica, TimePoint now, Actions& out) {
  const Proof& other = &proof == &proof_ && change_ ? change_->proof : proof_;
  const bool is_other_asked = &other != &proof && other.sequence != 0;
  proof.is_blocked = router_.state() != RouterState::listening || is_probing_ || is_other_asked;
  const bool is_lost = proof.router != router_.incarnation();
  if (proof.sequence != 0 && (proof.is_blocked || is_lost)) proof.forget(now);
  if (proof.is_blocked) return;
  if (proof.sequence != 0 && now < proof.at) return;
  if (proof.sequence != 0) {
    (void)proof_result({proof.sequence, false, "no answer in time"}, now, out);
    return;
  }
  if (proof.failed > 0 && now < proof.at) return;
  publish(out);  // the router has to know it before
  proof.sequence = ++probe_sequence_;
  proof.router = router_.incarnation();
  proof.replica = replica;
  proof.at = now + kProbeTime;
  out.emplace_back(Send{router_.peer(), Probe{proof.sequence, replica}});
}

// Those that a change brings prove themselves to it.
bool Deployment::is_arriving(const Cohort& cohort) const {
  return is_moving() && change_->at < change_->moves.size() &&
         std::ranges::any_of(change_->moves[change_->at].arrive,
                             [&](const Seat& seat) { return seat.replica == cohort.replica(); });
}

void Deployment::prove_restarted(bool can_ask, TimePoint now, Actions& out) {
  if (!can_ask) {
    proof_ = {};
    return;
  }
  const auto is_meant = [this](const Cohort& c) {
    return c.state() == CohortState::ready && !c.is_proved() && !is_arriving(c);
  };
  const Cohort* asked = find_cohort(proof_.replica);
  if (asked == nullptr || !is_meant(*asked)) proof_ = {};
  const auto next = asked != nullptr && is_meant(*asked)
                        ? std::ranges::find(cohorts_, asked->replica(), &Cohort::replica)
                        : std::ranges::find_if(cohorts_, is_meant);
  if (next != cohorts_.end()) prove(proof_, next->replica(), now, out);
}

// Whether it was the answer to the probe of one replica.
bool Deployment::proof_result(const ProbeResult& result, TimePoint now, Actions& out) {
  if (proof_.sequence != 0 && result.sequence == proof_.sequence) {
    restarted_answered(result, now, out);
    return true;
  }
  if (!is_moving() || change_->proof.sequence == 0 || result.sequence != change_->proof.sequence) {
    return false;
  }
  arrival_answered(result, now, out);
  return true;
}

// One that works no more than it did before is started once more, later and later.
void Deployment::restarted_answered(const ProbeResult& result, TimePoint now, Actions& out) {
  proof_.sequence = 0;
  Cohort* cohort = find_cohort(proof_.replica);
  if (cohort == nullptr || cohort->state() != CohortState::ready) return;
  if (result.ok) {
    cohort->prove();
    proof_ = {};
    is_proved_ = is_proved_ || !is_moving();
    return;
  }
  const Error error = probe_error(result.code, "does not answer a test request: " + result.message);
  proof_.at = now + kProbeRetry;
  if (++proof_.failed < kProofsMax && !is_permanent(error.code)) return;
  proof_ = {};
  cohort->refuse(error, now, out);
}

void Deployment::arrival_answered(const ProbeResult& result, TimePoint now, Actions& out) {
  Change& change = *change_;
  change.proof.sequence = 0;
  if (change.phase != MovePhase::arriving) return;
  if (!result.ok) {
    Error error = probe_error(result.code, "it does not answer a test request: " + result.message);
    change.proof.at = now + kProbeRetry;
    const bool is_last = ++change.proof.failed >= kProofsMax || is_permanent(error.code);
    if (!is_last) return;
    if (change.state == ChangeState::moving) return begin_revert(std::move(error));
    // What comes back is damaged too: the others serve on without it.
    Cohort* cohort = find_cohort(change.proof.replica);
    change.proof = {};
    if (cohort != nullptr) cohort->refuse(error, now, out);
    return;
  }
  change.proof.failed = 0;
  Cohort* cohort = find_cohort(change.proof.replica);
  if (cohort != nullptr && cohort->state() == CohortState::ready) cohort->prove();
}

}  // namespace plimsoll
