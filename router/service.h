// Service: the router's decisions: HTTP requests, leaders' tokens and the daemon's words in,
// actions out, in order. Pure: no sockets, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "router/api/completions.h"
#include "router/api/metrics.h"
#include "router/api/model_context.h"
#include "router/api/route_table.h"
#include "router/dispatch/dispatcher.h"
#include "router/dispatch/health.h"
#include "router/stream/job.h"

namespace plimsoll {

struct Respond {
  ExchangeId exchange = 0;
  HttpResponse response;
};
struct BeginStream {
  ExchangeId exchange = 0;
  HttpResponse head;
};
struct StreamData {
  ExchangeId exchange = 0;
  std::string data;
};
struct EndStream {
  ExchangeId exchange = 0;
  bool keep_alive = true;  // false after an error: nothing may follow it
};
struct ToLeader {
  std::int64_t replica = 0;
  Message message;
};
struct ToDaemon {
  Message message;
};
struct SetLogLevel {
  std::string level;
};
// From here on each connection ends with its next answer.
struct EndConnections {};
// And new ones wait in the listening socket. `Service::all_answered` once no request can come.
struct StopAccepting {};
// Write what is under way, then end the process with 0.
struct Exit {};

using RouterAction =
    std::variant<Respond, BeginStream, StreamData, EndStream, ToLeader, ToDaemon, ConnectLeader,
                 DropLeader, SetLogLevel, EndConnections, StopAccepting, Exit>;

// To whoever comes while it drains.
ApiError draining_error();

struct ServiceSetup {
  DispatchLimits limits;
  std::uint64_t random_seed = 0;  // of request ids and of seeds that clients leave out
};

class Service {
 public:
  Service(ModelContext model, const ServiceSetup& setup);

  void http_request(ExchangeId exchange, const HttpRequest& request, TimePoint now);
  // The client of an exchange that has no whole answer yet is gone.
  void hung_up(ExchangeId exchange, TimePoint now);
  // A request was answered with that status before it could be understood.
  void refused(int status) { ++metrics_.responses[status]; }
  void daemon_message(const Message& message, TimePoint now);
  // Somebody ends this process while the daemon lives, which starts another one: nobody is refused,
  // and what is open ends here.
  void terminated(TimePoint now);
  // After StopAccepting: no connection is left that may bring a request.
  void all_answered(TimePoint now);
  void disconnected(std::int64_t replica, TimePoint now);
  void leader_tokens(std::int64_t replica, StepTokens&& step, TimePoint now);
  // A Generate could not be sent to its leader.
  void send_failed(std::uint64_t id, const Error& error, TimePoint now);
  // REQUIRES: a few times a second.
  void tick(TimePoint now);
  std::vector<RouterAction> take_actions();

 private:
  struct OpenJob {
    Job job;
    std::vector<std::uint64_t> ids;  // of its choices' requests; 0: ended
    std::string request_id;
    std::vector<std::string> unknown_fields;
    bool begun = false;  // the head of its stream is out
    bool first_token = false;
    TimePoint last_data;
  };
  struct Place {
    ExchangeId exchange = 0;
    std::size_t choice = 0;
  };

  void start_job(ExchangeId exchange, const HttpRequest& request, bool chat, TimePoint now);
  HttpResponse answer(const RouteMatch& route, const HttpRequest& request);
  HttpResponse health_response() const;
  HttpResponse metrics_response() const;
  void respond(ExchangeId exchange, const std::string& request_id, HttpResponse response);
  void log_unknown(const std::vector<std::string>& names);

  void settle(TimePoint now);
  void apply(DispatchAction&& action, TimePoint now);
  void deliver(TokenEvent&& event, TimePoint now);
  void fail(std::uint64_t id, const Error& error, TimePoint now);
  void log_failures();
  void fail_job(ExchangeId exchange, const ApiError& error, TimePoint now);
  void cancel_choices(OpenJob& open);
  void flush_job(ExchangeId exchange, TimePoint now);
  void begin(OpenJob& open, TimePoint now);
  void end_job(ExchangeId exchange, TimePoint now);

  void probe(const Probe& message, TimePoint now);
  void probe_done(const std::optional<ProbeResult>& result);
  void drain(const Drain& message, TimePoint now);
  void change_limits(const RouterSetup& setup);
  void check_drained(TimePoint now);
  void keep_streams_alive(TimePoint now);
  void send_stats();
  std::string random_id(const char* prefix);

  ModelContext model_;
  Dispatcher dispatcher_;
  std::mt19937_64 random_;
  std::uint64_t next_request_ = 1;
  std::map<ExchangeId, OpenJob> jobs_;
  std::map<std::uint64_t, Place> places_;  // by request id
  std::set<ExchangeId> touched_;           // jobs with something to send
  ProbeRun probe_;
  Metrics metrics_;
  std::int64_t requests_total_ = 0;
  TimePoint last_stats_at_;
  std::optional<TimePoint> drain_deadline_;
  bool is_followed_ = false;  // while it drains: by another router, so that nobody is refused
  bool is_all_answered_ = false;
  bool exiting_ = false;
  std::set<std::string> unknown_logged_;
  std::map<std::string, std::vector<std::string>> failures_;  // request ids by cause, to be logged
  std::vector<RouterAction> actions_;
};

}  // namespace plimsoll
