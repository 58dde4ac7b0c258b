// Messages: everything that may be said between processes: a struct and its field visitor each.
//
// The codec, printing, fuzzing and PROTOCOL.md follow from `fields`. A message that lacks
// a field is refused, one with more is not. Any change raises kProtocolVersion.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "shared/base/json.h"

namespace plimsoll {

constexpr std::int64_t kProtocolVersion = 6;

// ---- worker and daemon ----

// A child's first words. The daemon answers a worker with Load, a router with RouterSetup.
struct Hello {
  std::string role;  // "worker", "router"
  std::int64_t version = kProtocolVersion;
  std::string instance;  // of the daemon that spawned it, from the command line
  std::int64_t pid = 0;
  std::int64_t replica = 0;
  std::int64_t rank = 0;
  std::string device;     // "cpu avx512-vnni"
  std::int64_t free = 0;  // bytes that a worker finds available; 0: not said
  template <typename V>
  void fields(V& v) {
    v("role", role), v("version", version), v("instance", instance), v("pid", pid);
    v("replica", replica), v("rank", rank), v("device", device), v("free", free);
  }
};

struct Load {
  Json options;  // option_set_to_json
  Json plan;     // memory_plan_to_json
  std::int64_t replica = 0;
  std::int64_t rank = 0;
  std::string request_endpoint;  // that a leader binds; empty for the others
  // table_to_json of an earlier start like this one, which is only checked; null: there is none.
  Json collectives = {};
  // Of a rank on a device: it says what it finds there (Opened), and loads nothing before a Load
  // that is not, perhaps of another plan.
  bool is_tentative = false;
  std::int64_t simulated_memory = 0;  // that was free on its device at first; 0: by the plan
  template <typename V>
  void fields(V& v) {
    v("options", options), v("plan", plan), v("replica", replica), v("rank", rank);
    v("request_endpoint", request_endpoint), v("collectives", collectives);
    v("is_tentative", is_tentative), v("simulated_memory", simulated_memory);
  }
};

// The answer to a Load that is tentative: a rank has made its context on its device, and loaded
// nothing.
struct Opened {
  std::int64_t context = 0;  // bytes that it takes
  std::int64_t free = 0;     // of the device, now
  template <typename V>
  void fields(V& v) {
    v("context", context), v("free", free);
  }
};

struct Progress {
  std::string phase;      // "loading", "waiting", "warming"
  std::int64_t done = 0;  // bytes
  std::int64_t total = 0;
  template <typename V>
  void fields(V& v) {
    v("phase", phase), v("done", done), v("total", total);
  }
};

// Weights are in memory; `measured` is measured_to_json(). The daemon answers all ranks with
// Commit.
struct Loaded {
  Json measured;
  template <typename V>
  void fields(V& v) {
    v("measured", measured);
  }
};

struct Commit {
  std::int64_t kv_blocks = 0;
  std::int64_t context_length = 0;  // at most the plan's
  template <typename V>
  void fields(V& v) {
    v("kv_blocks", kv_blocks), v("context_length", context_length);
  }
};

// KV is allocated and a step has run through all ranks.
struct Ready {
  std::string device;  // "cpu avx512-vnni, 2 threads, int8 activations"
  Json measured;       // once more, after the step
  // table_to_json of what it goes by, the same on all ranks; null: it is alone.
  Json collectives = {};
  template <typename V>
  void fields(V& v) {
    v("device", device), v("measured", measured), v("collectives", collectives);
  }
};

// Sent by the daemon each second; answered from the step loop.
struct Ping {
  std::int64_t sequence = 0;
  template <typename V>
  void fields(V& v) {
    v("sequence", sequence);
  }
};

struct Pong {
  std::int64_t sequence = 0;
  std::int64_t steps = 0;  // finished since start
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t kv_blocks_used = 0;
  std::int64_t kv_blocks_touched = 0;  // that have ever held a token, or were touched at start
  std::int64_t prompt_tokens = 0;      // since start
  std::int64_t cached_tokens = 0;      // since start; of prompt_tokens: found in the prefix cache
  std::int64_t generated_tokens = 0;   // since start
  template <typename V>
  void fields(V& v) {
    v("sequence", sequence), v("steps", steps), v("running", running), v("waiting", waiting);
    v("kv_blocks_used", kv_blocks_used), v("kv_blocks_touched", kv_blocks_touched);
    v("prompt_tokens", prompt_tokens), v("cached_tokens", cached_tokens);
    v("generated_tokens", generated_tokens);
  }
};

// Last words of a child that ends by itself.
struct Fault {
  std::string code;  // code_name
  std::string message;
  template <typename V>
  void fields(V& v) {
    v("code", code), v("message", message);
  }
};

// Live changes, to every child.
struct SetLive {
  std::string log_level;
  std::int64_t max_queued_requests = 0;
  std::int64_t step_time_max_ms = 0;
  std::int64_t hold_deadline_ms = 0;
  template <typename V>
  void fields(V& v) {
    v("log_level", log_level), v("max_queued_requests", max_queued_requests);
    v("step_time_max_ms", step_time_max_ms), v("hold_deadline_ms", hold_deadline_ms);
  }
};

// Finish what runs, then exit 0. A router refuses new requests with 503 from here on; one that
// another router follows (`is_followed`) leaves new connections in the listening socket instead.
struct Drain {
  std::int64_t deadline_ms = 0;  // from now
  bool is_followed = false;
  template <typename V>
  void fields(V& v) {
    v("deadline_ms", deadline_ms), v("is_followed", is_followed);
  }
};

// ---- router and daemon ----

// The answer to a Hello. Later ones change the limits of a router that runs, not its model.
struct RouterSetup {
  Json options;
  std::string model_path;
  std::string served_model_name;
  std::int64_t context_length = 0;
  template <typename V>
  void fields(V& v) {
    v("options", options), v("model_path", model_path);
    v("served_model_name", served_model_name), v("context_length", context_length);
  }
};

struct ReplicaInfo {
  std::int64_t replica = 0;
  // "loading", "warming", "proving" (takes probes only), "ready", "draining" (finishes what it
  // has), "failed", "restarting", "stopped"
  std::string state;
  std::string endpoint;          // of its leader, while it takes requests or has some
  std::int64_t incarnation = 0;  // grows with each start of its workers
  // The last of its incarnations whose cause of death is known (0: none), and whether it was a
  // fault of a worker itself (a crash, a failed check), which the requests on board may have
  // caused.
  std::int64_t ended_incarnation = 0;
  bool ended_by_fault = false;
  template <typename V>
  void fields(V& v) {
    v("replica", replica), v("state", state), v("endpoint", endpoint);
    v("incarnation", incarnation), v("ended_incarnation", ended_incarnation);
    v("ended_by_fault", ended_by_fault);
  }
};

// The whole table, at each change.
struct Replicas {
  std::string deployment_state;
  std::string reason;  // why it is not serving, for readiness answers
  std::vector<ReplicaInfo> replicas;
  template <typename V>
  void fields(V& v) {
    v("deployment_state", deployment_state), v("reason", reason), v("replicas", replicas);
  }
};

// The router accepts connections.
struct Listening {
  std::string url;
  template <typename V>
  void fields(V& v) {
    v("url", url);
  }
};

// Run a real request of one token on that replica, or on each ready one (-1); readiness depends on
// it.
struct Probe {
  std::int64_t sequence = 0;
  std::int64_t replica = -1;
  template <typename V>
  void fields(V& v) {
    v("sequence", sequence), v("replica", replica);
  }
};

struct ProbeResult {
  std::int64_t sequence = 0;
  bool ok = false;
  std::string message;
  std::string code = {};  // code_name, where a replica answered with an error
  template <typename V>
  void fields(V& v) {
    v("sequence", sequence), v("ok", ok), v("message", message), v("code", code);
  }
};

struct RouterStats {
  std::int64_t open_requests = 0;
  std::int64_t queued_requests = 0;
  std::int64_t tokens_left_max = 0;  // that one of the open requests may still get
  std::int64_t requests_total = 0;
  std::int64_t failed_total = 0;
  template <typename V>
  void fields(V& v) {
    v("open_requests", open_requests), v("queued_requests", queued_requests);
    v("tokens_left_max", tokens_left_max);
    v("requests_total", requests_total), v("failed_total", failed_total);
  }
};

// ---- CLI and daemon ----

// One request, one Reply.
struct Command {
  std::string
      verb;  // "start", "stop", "restart", "status", "plan", "reconfigure", "config", "logs"
  Json arguments;
  template <typename V>
  void fields(V& v) {
    v("verb", verb), v("arguments", arguments);
  }
};

struct Reply {
  std::int64_t exit_code = 0;
  std::string message;  // of an error, for people
  Json result;
  template <typename V>
  void fields(V& v) {
    v("exit_code", exit_code), v("message", message), v("result", result);
  }
};

// ---- router and leader ----

struct Sampling {
  std::int64_t max_tokens = 0;
  double temperature = 1;
  double top_p = 1;
  std::int64_t top_k = 0;  // 0: all
  double min_p = 0;
  std::uint64_t seed = 0;  // always given: the router draws one where the client did not
  double frequency_penalty = 0;
  double presence_penalty = 0;
  std::int64_t logprobs = -1;  // alternatives beside the chosen token; -1: no logprobs at all
  bool prompt_logprobs = false;
  bool ignore_eos = false;
  std::vector<std::int64_t> stop_ids;
  template <typename V>
  void fields(V& v) {
    v("max_tokens", max_tokens), v("temperature", temperature), v("top_p", top_p);
    v("top_k", top_k), v("min_p", min_p), v("seed", seed);
    v("frequency_penalty", frequency_penalty), v("presence_penalty", presence_penalty);
    v("logprobs", logprobs), v("prompt_logprobs", prompt_logprobs);
    v("ignore_eos", ignore_eos), v("stop_ids", stop_ids);
  }
};

// A request, or the rest of one that another leader did not finish: then `emitted` has the tokens
// that it gave, which count as generated here, and `prompt_reported` how many of prompt_logprobs
// are not to be given again. What follows are the tokens that would have followed there.
struct Generate {
  std::uint64_t id = 0;  // the router's; never reused in its life
  std::vector<std::int64_t> prompt;
  Sampling sampling;
  std::vector<std::int64_t> emitted;
  std::int64_t prompt_reported = 0;
  template <typename V>
  void fields(V& v) {
    v("id", id), v("prompt", prompt), v("sampling", sampling);
    v("emitted", emitted), v("prompt_reported", prompt_reported);
  }
};

// The client went away, or the text reached a stop string. KV is free by the end of the step.
struct Cancel {
  std::uint64_t id = 0;
  template <typename V>
  void fields(V& v) {
    v("id", id);
  }
};

// A token with its log-probability (of the model's own distribution, before any sampling option)
// and the most likely alternatives, best first.
struct TokenLogprob {
  std::int64_t id = 0;
  double logprob = 0;
  std::vector<std::int64_t> top_ids;
  std::vector<double> top_logprobs;
  template <typename V>
  void fields(V& v) {
    v("id", id), v("logprob", logprob), v("top_ids", top_ids), v("top_logprobs", top_logprobs);
  }
};

struct TokenEvent {
  std::uint64_t id = 0;                       // of the request
  std::vector<std::int64_t> tokens;           // new ones
  std::vector<TokenLogprob> logprobs;         // one a token where asked for
  std::vector<TokenLogprob> prompt_logprobs;  // of prompt tokens 1.., as far as they are new
  // Of the prompt: found in the prefix cache. Told once, when all of the prompt is computed; else
  // -1.
  std::int64_t cached_tokens = -1;
  std::string finish;      // "", "stop", "length", "cancelled", "error"
  std::string error_code;  // code_name, where finish is "error"
  std::string error;
  template <typename V>
  void fields(V& v) {
    v("id", id), v("tokens", tokens), v("logprobs", logprobs);
    v("prompt_logprobs", prompt_logprobs), v("cached_tokens", cached_tokens);
    v("finish", finish);
    v("error_code", error_code), v("error", error);
  }
};

// Everything that one step produced, in one message.
struct StepTokens {
  std::vector<TokenEvent> events;
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t kv_blocks_used = 0;
  std::int64_t kv_blocks = 0;
  template <typename V>
  void fields(V& v) {
    v("events", events), v("running", running), v("waiting", waiting);
    v("kv_blocks_used", kv_blocks_used), v("kv_blocks", kv_blocks);
  }
};

using Message =
    std::variant<Hello, Load, Opened, Progress, Loaded, Commit, Ready, Ping, Pong, Fault, SetLive,
                 Drain, RouterSetup, Replicas, Listening, Probe, ProbeResult, RouterStats, Command,
                 Reply, Generate, Cancel, StepTokens>;

}  // namespace plimsoll
