// SglangFraction: what SGLang 0.5.23 would choose for mem-fraction-static by itself.
//
// For comparisons only: its reserve knows neither the model's width nor its experts. Our own auto
// sizes KV from the terms of the plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/base/units.h"
#include "shared/options/fraction.h"

namespace plimsoll {

struct SglangLaunch {
  std::int64_t device_mib = 0;  // as nvidia-smi lists it; the least of all
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t dp_attention = 0;  // its size; 0: off
  bool is_latent = false;
  Tokens chunked_prefill = 0;                    // 0: by the device's memory
  std::optional<std::int64_t> graph_batch = {};  // 0: no graphs; unset: by the device's memory
  std::int64_t requests = 0;  // that may run: graphs for more are not captured; 0: not said
  bool has_vision = false;
  // Of the tower as its config names them for all to see; else as SGLang supposes.
  std::int64_t vision_layers = 24;
  std::int64_t vision_hidden = 1024;
  bool has_prefill_graphs = true;
  bool has_deepep = false;
};

// What it keeps back for graphs and activations, and the same in words.
struct SglangReserve {
  double mib = 0;
  std::string formula;  // "512 + 1.5 x 8,192 tokens + 1,024 x 8 ranks / 8 + 2 x 128 MiB"
  Bytes bytes() const;
};
// REQUIRES: device_mib > 0.
SglangReserve sglang_reserve(const SglangLaunch& launch);
// In steps of 0.001. REQUIRES: device_mib > 0.
Millionths sglang_auto_fraction(const SglangLaunch& launch);

// Its table from requests to tokens on the device: outside of its budget.
Bytes sglang_request_table_bytes(std::int64_t requests, Tokens context_length);

}  // namespace plimsoll
