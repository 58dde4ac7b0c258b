#include "worker/follower.h"

namespace plimsoll {

Follower::Follower(const Parts& parts) : parts_(parts), plan_(make_step_plan(parts.limits)) {}

Result<Followed> Follower::follow(Duration timeout) {
  const auto message = TRY(parts_.receiver->receive(timeout));
  if (!message) return Followed::nothing;
  if (TRY(decode_step(*message, parts_.limits, plan_)) == StepKind::stop) {
    TRY(parts_.collective->barrier());
    return Followed::stop;
  }
  TRY(parts_.engine->run(plan_));
  ++steps_;
  return Followed::step;
}

}  // namespace plimsoll
