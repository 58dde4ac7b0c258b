#include "daemon/status_report.h"

#include <algorithm>

#include "daemon/memory_status.h"

namespace plimsoll {
namespace {

std::int64_t unix_time(TimePoint at, TimePoint now) {
  return unix_seconds() - std::chrono::duration_cast<seconds>(now - at).count();
}

Json rank_json(const Worker& worker, std::int64_t rank, Bytes planned, std::int64_t restarts) {
  Json progress = Json::object({{"done", worker.bytes_done}, {"total", worker.bytes_total}});
  Json json = Json::object({{"rank", rank},
                            {"pid", worker.is_alive ? worker.pid : 0},
                            {"device", worker.device},
                            {"state", worker_state_name(worker.state)},
                            {"progress", std::move(progress)},
                            {"memory_bytes", planned},
                            {"restarts", restarts}});
  if (worker.measured) {
    json.set("measured", *measured_to_json(*worker.measured).find("terms"));
  }
  return json;
}

Json replica_json(const Deployment& deployment, const Cohort& cohort, TimePoint now) {
  const LaunchPlan& plan = cohort.plan();
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < cohort.workers().size(); ++rank) {
    const auto index = static_cast<std::size_t>(cohort.index() * plan.tp) + rank;
    const Bytes planned = index < plan.rank_bytes.size() ? plan.rank_bytes[index] : 0;
    Json json = rank_json(cohort.workers()[rank], static_cast<std::int64_t>(rank), planned,
                          cohort.restarts());
    if (index < plan.memory.ranks.size()) {
      json.set("memory", rank_memory_json({.plan = plan.memory,
                                           .rank = plan.memory.ranks[index],
                                           .worker = cohort.workers()[rank],
                                           .kv_blocks = cohort.kv_blocks()}));
    }
    ranks.push(std::move(json));
  }
  const LeaderFigures& figures = cohort.figures();
  const std::int64_t blocks = cohort.state() == CohortState::ready ? cohort.kv_blocks() : 0;
  Json json = Json::object(
      {{"replica", cohort.replica()},
       {"state", deployment.replica_state(cohort)},
       {"incarnation", cohort.incarnation()},
       {"restarts", cohort.restarts()},
       {"running", figures.last.running},
       {"waiting", figures.last.waiting},
       {"tokens_per_second", figures.tokens_per_second},
       {"prompt_tokens", figures.last.prompt_tokens},
       {"cached_tokens", figures.last.cached_tokens},
       {"generated_tokens", figures.last.generated_tokens},
       {"kv", Json::object({{"blocks", blocks}, {"used", figures.last.kv_blocks_used}})},
       {"ranks", std::move(ranks)}});
  json.set("collectives", cohort.workers().front().collectives);
  if (cohort.state() == CohortState::waiting) {
    json.set("retry_in_s", std::max(to_seconds(cohort.retry_at() - now), 0.0));
  }
  return json;
}

Json router_json(const RouterChild& router) {
  const RouterStats& stats = router.stats();
  return Json::object({{"pid", router.has_process() ? router.pid() : 0},
                       {"state", router_state_name(router.state())},
                       {"restarts", router.restarts()},
                       {"open_requests", stats.open_requests},
                       {"queued_requests", stats.queued_requests},
                       {"requests_total", stats.requests_total},
                       {"failed_total", stats.failed_total}});
}

Json last_fault_json(const std::optional<LastFault>& fault, TimePoint now) {
  if (!fault) return nullptr;
  return Json::object({{"time", unix_time(fault->at, now)},
                       {"message", fault->message},
                       {"replica", fault->replica < 0 ? Json() : Json(fault->replica)},
                       {"rank", fault->rank < 0 ? Json() : Json(fault->rank)}});
}

Json quarantine_json(const Quarantine& quarantine, TimePoint now) {
  Json all = Json::array();
  for (const QuarantinedDevice& device : quarantine) {
    all.push(Json::object({{"device", device.uuid},
                           {"name", device.name},
                           {"reason", device.reason},
                           {"since", unix_time(device.since, now)}}));
  }
  return all;
}

// Of the replica that has least; 0: none has been told yet.
Blocks committed_blocks(const Deployment& deployment) {
  Blocks least = 0;
  for (const Cohort& cohort : deployment.cohorts()) {
    if (&cohort.plan() != &deployment.plan() || cohort.kv_blocks() == 0) continue;
    least = least == 0 ? cohort.kv_blocks() : std::min(least, cohort.kv_blocks());
  }
  return least;
}

// The sums over all replicas that the one-screen view shows.
void add_totals(Json& json, const Deployment& deployment) {
  std::int64_t running = 0;
  std::int64_t waiting = deployment.router().stats().queued_requests;
  std::int64_t blocks = 0;
  std::int64_t used = 0;
  double tokens_per_second = 0;
  for (const Cohort& cohort : deployment.cohorts()) {
    const LeaderFigures& figures = cohort.figures();
    running += figures.last.running;
    waiting += figures.last.waiting;
    used += figures.last.kv_blocks_used;
    tokens_per_second += figures.tokens_per_second;
    if (cohort.state() == CohortState::ready) blocks += cohort.kv_blocks();
  }
  json.set("running", running);
  json.set("queue", waiting);
  json.set("tokens_per_second", tokens_per_second);
  json.set("kv", Json::object({{"blocks", blocks}, {"used", used}}));
}

}  // namespace

Json status_json(const Supervisor& supervisor, TimePoint now) {
  const Supervisor::Setup& setup = supervisor.setup();
  const Deployment* deployment = supervisor.deployment();
  Json json = Json::object({{"version", setup.version},
                            {"state", deployment_state_name(supervisor.state())},
                            {"reason", supervisor.reason()},
                            {"operation", supervisor.operation_name()},
                            {"generation", supervisor.generation()},
                            {"committed", supervisor.committed()},
                            {"url", supervisor.url()},
                            {"pid", setup.pid},
                            {"instance", setup.instance},
                            {"uptime_s", to_seconds(now - setup.started)},
                            {"time", unix_seconds()}});
  const bool serves = supervisor.state() == DeploymentState::serving;
  json.set("serving_s", serves ? to_seconds(now - supervisor.serving_since()) : 0.0);
  json.set("router", deployment != nullptr ? router_json(deployment->router()) : Json());
  Json replicas = Json::array();
  if (deployment != nullptr) {
    const LaunchPlan& plan = deployment->plan();
    json.set("model", plan.served_model_name);
    json.set("context_length", plan.context_length);
    for (const Cohort& cohort : deployment->cohorts()) {
      replicas.push(replica_json(*deployment, cohort, now));
    }
    const Progress progress = deployment->progress();
    json.set("progress", Json::object({{"done", progress.done}, {"total", progress.total}}));
    add_totals(json, *deployment);
    Json notes = Json::array();
    for (const std::string& note : plan.notes) notes.push(note);
    json.set("plan", Json::object({{"tp", plan.tp}, {"dp", plan.dp}, {"notes", notes}}));
    json.set("drift", drifts_json(deployment->drifts()));
    json.set("lowered", lowered_line(plan, committed_blocks(*deployment)));
  }
  json.set("replicas", std::move(replicas));
  json.set("quarantine", quarantine_json(supervisor.quarantined(), now));
  json.set("last_fault", last_fault_json(supervisor.last_fault(), now));
  json.set("runtime_dir", setup.runtime);
  json.set("state_dir", setup.state);
  json.set("log_file", setup.log_file);
  json.set("options", option_set_to_json(supervisor.options()));
  return json;
}

}  // namespace plimsoll
