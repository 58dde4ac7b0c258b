// DeviceTerms: the formula of each row of a GPU rank's plan but KV: bytes, and the arithmetic in
// words.
//
// What no formula gives (contexts, graphs) is assumed from public measurements and replaced by what
// this machine has measured, as soon as it has. docs/plan.md lists every formula.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/units.h"
#include "shared/machine/machine.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/memory_terms.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

// The same on every rank of a deployment.
struct DeviceSetting {
  std::int64_t tp = 1;
  std::int64_t ep = 1;
  Tokens ep_dispatch_tokens = 128;
  DeviceLink link = DeviceLink::pcie;
  bool by_nccl = false;  // ranks with our kernels add up by it
};

struct DeviceTermInputs {
  const ModelSpec& model;
  const RankShape& rank;  // with a device
  const StepShape& step;
  const DeviceSetting& setting;
};

// All rows but KV: bytes by term, and the arithmetic of one in words.
TermBytes device_term_bytes(const DeviceTermInputs& in);
std::string device_term_formula(const DeviceTermInputs& in, Term term);
Trust device_term_trust(const DeviceTermInputs& in, Term term);

// --- formulas on their own, for tests and other estimates ---

// 3.2 MiB a multiprocessor: five cards measured 2.95 to 3.15.
Bytes context_bytes(const Device& device);
// NCCL within one machine: a ring and a tree of `channels` each, 12 MiB a connection; NVLS buffers
// where there is a switch; the all-to-all of experts.
Bytes nccl_bytes(const Device& device, const DeviceSetting& setting);
// Buffers of the custom all-reduce, 24 MiB; nothing where it does not run (tp not 2, 4, 6 or 8).
Bytes custom_all_reduce_bytes(std::int64_t tp);
// What the peers map of a rank's memory.
Bytes peer_mapped_bytes(const Device& device, const DeviceSetting& setting);
// DeepEP's low-latency buffer: exact.
Bytes ep_buffer_bytes(std::int64_t experts, std::int64_t hidden, Tokens dispatch_tokens);
// Rows of logits over a vocabulary: bf16 as computed, f32, and f32 probabilities.
Bytes logit_row_bytes(std::int64_t vocab);
Bytes graph_bytes(std::int64_t layers, std::int64_t largest_batch, std::int64_t tp);
// Buffers that captured all-reduces make known to the peers, where the custom one runs.
std::int64_t registered_addresses(std::int64_t layers, std::int64_t largest_batch, std::int64_t tp);
Bytes device_margin(Bytes device_total);

// By the device's memory, as servers do: 2,048 to 16,384 tokens; 8 to 512 requests.
Tokens default_step_tokens(Bytes device_total);
std::int64_t default_graph_batch(Bytes device_total, std::int64_t tp);
// The largest device that has smaller defaults; nullopt: none has.
std::optional<Bytes> next_smaller_defaults(Bytes device_total);

}  // namespace plimsoll
