// The part of the supervisor that tells people and the service manager how it stands.

#include <fmt/format.h>

#include "daemon/supervisor.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr Duration kExtendEvery = seconds(1);
constexpr Duration kExtendBy = seconds(60);
constexpr std::int64_t kPercentStep = 25;  // between two lines about loading
constexpr Duration kRestartProgressEvery = seconds(10);

}  // namespace

void Supervisor::report_loading(TimePoint now) {
  const Progress progress = deployment_->progress();
  if (progress.total <= 0) return;
  const std::int64_t percent = progress.done * 100 / progress.total;
  if (percent < reported_percent_) reported_percent_ = -1;  // loaded once more, after a death
  const std::string line =
      fmt::format("loading: {} % of {}", percent, format_bytes(progress.total));
  const bool is_begin = reported_percent_ < 0;
  const bool is_step = is_begin || percent / kPercentStep > reported_percent_ / kPercentStep;
  // After a death nobody waits for it at a terminal: only a long one is told about.
  if (is_begin) progress_logged_at_ = now;
  const bool is_brief =
      !operation_.is_launched && now - progress_logged_at_ < kRestartProgressEvery;
  if (is_step && !is_brief) {
    log(LogLevel::info, line);
    progress_logged_at_ = now;
  }
  if (percent > reported_percent_ && now - extended_at_ >= kExtendEvery) {
    extended_at_ = now;
    out_.emplace_back(Notify{.status = line, .extend = kExtendBy});
  }
  reported_percent_ = percent;
}

std::string Supervisor::serving_line() const {
  return fmt::format("serving {} at {}", deployment_->plan().served_model_name, url_);
}

// The service manager's deadlines of a start and of a reload stand in for a daemon that says
// nothing any more; each phase of both has a deadline here.
void Supervisor::extend_deadline(TimePoint now) {
  if (!is_bringing_up() || now - extended_at_ < kExtendEvery) return;
  extended_at_ = now;
  out_.emplace_back(Notify{.status = "", .extend = kExtendBy});
}

// One line, one record and one word to the service manager for each change that people care about.
void Supervisor::report(TimePoint now) {
  const DeploymentState state = this->state();
  if (state == DeploymentState::loading && deployment_) report_loading(now);
  if (state == reported_) return;
  reported_ = state;
  out_.emplace_back(SaveState{});
  if (state == DeploymentState::serving) {
    const bool is_first = operation_.is_launched;
    const std::string after =
        is_first ? fmt::format(", started in {:.2f} s", to_seconds(now - launched_at_)) : "";
    log(LogLevel::info, fmt::format("{} (generation {}{})", serving_line(), generation_, after));
    out_.emplace_back(
        Notify{.is_ready = !was_notified_ready_,
               .status = fmt::format("{} (generation {}{})", serving_line(), generation_, after)});
    was_notified_ready_ = true;
    return;
  }
  // Of what has served, the line with the cause says it.
  const bool is_told = deployment_ && deployment_->has_served() &&
                       (state == DeploymentState::loading || state == DeploymentState::warming);
  const bool is_news = state != DeploymentState::planned && !is_told;
  if (is_news) log(LogLevel::info, deployment_state_name(state));
  out_.emplace_back(Notify{.status = deployment_state_name(state)});
}

}  // namespace plimsoll
