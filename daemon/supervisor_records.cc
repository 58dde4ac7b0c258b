// The part of the supervisor that keeps the records of generations.

#include <algorithm>

#include <fmt/format.h>

#include "daemon/supervisor.h"

namespace plimsoll {
namespace {

// A record of a faster second is written at most that often.
constexpr Duration kSpeedEvery = seconds(60);
constexpr double kFasterBy = 1.05;

Json measured_of(const Deployment& deployment) {
  Json all = Json::array();
  for (const Cohort& cohort : deployment.cohorts()) {
    for (std::size_t rank = 0; rank < cohort.workers().size(); ++rank) {
      const std::optional<Measured>& measured = cohort.workers()[rank].measured;
      all.push(Json::object(
          {{"replica", cohort.replica()},
           {"rank", static_cast<std::int64_t>(rank)},
           {"bytes", measured ? *measured_to_json(*measured).find("terms") : Json()}}));
      if (rank == 0) all.as_array().back().set("collectives", cohort.workers()[rank].collectives);
    }
  }
  return all;
}

double speed_of(const Deployment& deployment) {
  double sum = 0;
  for (const Cohort& cohort : deployment.cohorts()) sum += cohort.figures().tokens_per_second;
  return sum;
}

std::int64_t running_of(const Deployment& deployment) {
  std::int64_t sum = 0;
  for (const Cohort& cohort : deployment.cohorts()) sum += cohort.figures().last.running;
  return sum;
}

}  // namespace

std::int64_t Supervisor::unix_time(TimePoint at) const {
  return setup_.started_unix + std::chrono::duration_cast<seconds>(at - setup_.started).count();
}

void Supervisor::write_record() { out_.emplace_back(WriteRecord{record_}); }

// Of the plan that is launched now.
void Supervisor::begin_record(TimePoint now) {
  end_record(Outcome::stopped, "", now);  // of what ran before
  const LaunchPlan& plan = *operation_.plan;
  record_ = {.number = generation_,
             .started = unix_time(now),
             .cause = operation_.cause,
             .based_on = operation_.based_on,
             .options = plan.options_json,
             .plan = plan.plan_json,
             .environment = plan.environment};
  write_record();
}

void Supervisor::resume_record(const GenerationRecord& record) {
  record_ = record;
  record_.outcome = Outcome::launching;
  record_.ended = 0;
  write_record();
}

// What was not even started has a number and a record too: it is what people ask about.
void Supervisor::record_refusal(const Error& error, const LaunchPlan* plan, TimePoint now) {
  GenerationRecord refused{.number = ++generations_,
                           .started = unix_time(now),
                           .ended = unix_time(now),
                           .outcome = Outcome::refused,
                           .message = error.message,
                           .cause = operation_.cause,
                           .based_on = operation_.based_on,
                           .options = option_set_to_json(operation_.target)};
  if (plan != nullptr) {
    refused.plan = plan->plan_json;
    refused.environment = plan->environment;
  }
  out_.emplace_back(WriteRecord{std::move(refused)});
}

void Supervisor::record_serving(TimePoint now) {
  record_.outcome = Outcome::serving;
  record_.known_good = true;
  record_.measured = measured_of(*deployment_);
  // A deployment that changed while it served has not been launched again.
  record_.started_in_s = operation_.is_in_place ? operation_.previous->record.started_in_s
                                                : to_seconds(now - launched_at_);
  write_record();
}

void Supervisor::record_live_change(const Json& options, const std::string& cause, TimePoint now) {
  GenerationRecord next = record_;
  end_record(Outcome::stopped, "", now);
  next.number = generation_;
  next.started = unix_time(now);
  next.cause = cause;
  next.based_on = record_.number;
  next.options = options;
  record_ = std::move(next);
  write_record();
}

void Supervisor::end_record(Outcome outcome, const std::string& message, TimePoint now) {
  if (record_.number == 0 || record_.ended != 0) return;
  record_.outcome = outcome;
  record_.message = message;
  // What a launch that failed has measured is known before the next one loads anything.
  const bool has_measured = !record_.measured.as_array().empty();
  if (!has_measured && deployment_ != nullptr) record_.measured = measured_of(*deployment_);
  if (outcome == Outcome::stopped && !record_.known_good) record_.message = "before it had served";
  record_.ended = unix_time(now);
  write_record();
}

void Supervisor::note_speed(TimePoint now) {
  const double speed = speed_of(*deployment_);
  const bool is_faster = speed > record_.tokens_per_second * kFasterBy;
  if (speed > record_.tokens_per_second) {
    record_.tokens_per_second = speed;
    record_.speed_requests = running_of(*deployment_);
  }
  if (!is_faster || record_.ended != 0 || now - speed_written_at_ < kSpeedEvery) return;
  speed_written_at_ = now;
  write_record();
}

// What runs is what the next start runs, as long as the daemon is given the same then.
void Supervisor::commit() {
  if (operation_.given) given_ = *operation_.given;
  committed_ = Committed{.generation = generation_,
                         .options = option_set_to_json(options_),
                         .given = option_set_to_json(given_)};
  out_.emplace_back(KeepCommitted{committed_});
}

void Supervisor::uncommit() {
  if (!committed_) return;
  committed_.reset();
  out_.emplace_back(KeepCommitted{std::nullopt});
}

// What to start with: what was in operation when the last daemon ended, unless this one was given
// something else than that one.
OptionSet Supervisor::first_options() {
  if (setup_.interrupted > 0) {
    log(LogLevel::warning,
        fmt::format(
            "generation {} was being brought up when the last plimsolld "
            "ended; it had not been committed{}",
            setup_.interrupted,
            committed_ ? " and is not taken up" : ", nor had any: what is configured is started"));
  }
  if (!committed_) return setup_.options;
  const std::int64_t generation = committed_->generation;
  Result<OptionSet> options = option_set_from_json(committed_->options);
  const Result<OptionSet> given = option_set_from_json(committed_->given);
  if (!options || !given) {
    log(LogLevel::warning, fmt::format("the options of generation {} cannot be read any more: "
                                       "starting with those that are configured now",
                                       generation));
    return setup_.options;
  }
  if (options->values == setup_.options.values) {
    log(LogLevel::info, fmt::format("starting with the options of generation {}, which are those "
                                    "that are configured",
                                    generation));
    return setup_.options;
  }
  if (given->values != setup_.options.values) {
    log(LogLevel::info, fmt::format("the configuration has changed since generation {}: starting "
                                    "with what it says now",
                                    generation));
    return setup_.options;
  }
  log(LogLevel::info,
      fmt::format("starting with the options of generation {}, which was in operation when the "
                  "last plimsolld ended; the configuration is older and has not changed since "
                  "(changing it, or `plimsoll stop`, ends that)",
                  generation));
  operation_.cause = fmt::format("start, as generation {}", generation);
  operation_.based_on = generation;
  return *options;
}

}  // namespace plimsoll
