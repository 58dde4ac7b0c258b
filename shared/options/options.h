// Options: every setting of a deployment, with its type and default.
//
// A plain struct; names, ranges, units, help and the effect of a change stand in one row each of
// option_table.cc. An empty optional is the word `auto`: the planner decides and says what.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/base/clock.h"
#include "shared/base/units.h"
#include "shared/options/fraction.h"

namespace plimsoll {

struct Options {
  // Model
  std::string model;  // path of a GGUF file; empty: the daemon waits for `plimsoll start`
  std::string served_model_name;  // empty: the file's stem
  std::optional<Tokens> context_length;
  std::string activations = "int8";  // int8 · f32 (reference, slow)
  std::string draft_model;           // proposes tokens that the model checks; empty: none

  // Layout
  std::int64_t tp = 1;                  // 0: auto, which layout_choice.h decides
  std::int64_t dp = 1;                  // 0: auto
  std::optional<std::int64_t> threads;  // a rank
  std::string devices = "auto";         // auto · cpu · cuda · simulated:SIZE (device_choice.h)
  std::string machine;                  // description to plan for; empty: this machine
  std::string simulation;               // JSON file of hidden costs; empty: there are none
  std::string cpu_path = "auto";        // auto · scalar · avx2 · avx512-vnni
  std::int64_t ep = 1;                  // ranks that the experts are divided over
  Tokens ep_dispatch_tokens = 128;      // of one rank and step, through expert-parallel buffers
  std::string collective = "auto";      // auto · shm · ipc · fused · nccl · nccl_symmetric
  std::string disable_custom_all_reduce = "off";  // on · off

  // Memory
  std::optional<Bytes> device_memory;                // of one rank
  std::optional<Millionths> mem_fraction_static;     // of what is free before weights: SGLang
  std::optional<Millionths> gpu_memory_utilization;  // of the device's total: vLLM
  std::optional<Bytes> kv_cache_bytes;               // of one rank
  std::string kv_cache_dtype = "auto";               // auto · f16 · bf16 · fp8 · int8
  std::optional<Tokens> max_total_tokens;            // KV tokens of a replica
  std::optional<std::int64_t> max_running_requests;  // of a replica
  std::optional<std::int64_t> cuda_graph_max_bs;     // largest captured decode batch; 0: none
  std::string assume;                                // "weights=72.29GiB,free=94GiB"
  std::string kv_prefault = "off";                   // on · off

  // Scheduling
  std::optional<Tokens> chunked_prefill_size;  // most of a step; adapts below it
  milliseconds step_time_max{250};
  std::int64_t num_continuous_decode_steps = 1;  // before the scheduler looks again
  std::string disable_radix_cache = "off";       // on · off
  std::int64_t max_queued_requests = 1024;       // waiting in the router, over all replicas
  milliseconds hold_deadline{60'000};            // of requests while no replica is ready

  // HTTP
  std::string host = "127.0.0.1";
  std::int64_t port = 8000;  // 0: a free one

  // Processes
  std::string runtime_dir;                // sockets; empty: by user, see default_folders()
  std::string state_dir;                  // records and logs; empty: by user
  milliseconds load_timeout{600'000};     // without any progress
  milliseconds shutdown_timeout{10'000};  // from drain to kill
  milliseconds stall_timeout{10'000};     // work pending and no step finished
  std::string log_level = "info";         // debug · info · warning · error

  bool operator==(const Options&) const = default;
};

}  // namespace plimsoll
