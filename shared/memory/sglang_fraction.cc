#include "shared/memory/sglang_fraction.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "shared/memory/device_terms.h"
#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

// 4 to 32 by 4, to 256 by 16, to 512 by 32, to 1,024 by 64, to 4,096 by 256, beyond by 512.
std::int64_t prefill_graph_count(Tokens largest) {
  std::int64_t count = 0;
  for (Tokens size = 4; size <= largest;) {
    ++count;
    if (size < 32) {
      size += 4;
    } else if (size < 256) {
      size += 16;
    } else if (size < 512) {
      size += 32;
    } else if (size < 1024) {
      size += 64;
    } else {
      size += size < 4096 ? 256 : 512;
    }
  }
  return count;
}

// Only what it chose itself is lowered to the requests that may run.
std::int64_t graph_batch(const SglangLaunch& launch) {
  if (launch.graph_batch) return *launch.graph_batch;
  const std::int64_t batch = default_graph_batch(launch.device_mib * kMiB, launch.tp);
  return launch.requests > 0 ? std::min(batch, launch.requests) : batch;
}

// A tower as large as ViT-L takes a twentieth off, a larger one more.
double vision_factor(const SglangLaunch& launch) {
  if (!launch.has_vision) return 1;
  const auto hidden = static_cast<double>(launch.vision_hidden);
  const double size =
      static_cast<double>(launch.vision_layers) * hidden * hidden / (24.0 * 1024 * 1024);
  return 0.95 * std::clamp(1 - 0.1 * (size - 1), 0.8, 1.05);
}

}  // namespace

Bytes SglangReserve::bytes() const {
  return static_cast<Bytes>(std::llround(mib * static_cast<double>(kMiB)));
}

SglangReserve sglang_reserve(const SglangLaunch& launch) {
  const Bytes total = launch.device_mib * kMiB;
  const Tokens chunk =
      launch.chunked_prefill > 0 ? launch.chunked_prefill : default_step_tokens(total);
  const Tokens tokens = std::max<Tokens>(chunk, 2048);
  const std::int64_t graphs = graph_batch(launch);
  const std::int64_t ranks = launch.tp * launch.pp;
  const auto batch = static_cast<double>(graphs);
  SglangReserve reserve;
  reserve.mib =
      512 + 1.5 * static_cast<double>(tokens) + 1024 * static_cast<double>(ranks) / 8 + 2 * batch;
  reserve.formula = fmt::format("512 + 1.5 x {} tokens + 1,024 x {} ranks / 8 + 2 x {}",
                                grouped(tokens), ranks, graphs);
  if (launch.dp_attention > 0) {
    const double rows = batch * static_cast<double>(launch.dp_attention);
    reserve.mib += 3 * rows + (batch > 300 ? 1.5 * rows : 0);
    reserve.formula +=
        fmt::format(" + {} x {} x {}", batch > 300 ? "4.5" : "3", graphs, launch.dp_attention);
  }
  if (launch.has_prefill_graphs) {
    const std::int64_t sizes = prefill_graph_count(chunk);
    reserve.mib += launch.is_latent ? 1536 : 8 * static_cast<double>(sizes);
    reserve.formula += launch.is_latent ? " + 1,536" : fmt::format(" + 8 x {} sizes", sizes);
  }
  if (total > 60 * kGiB && reserve.mib < 10'240) {
    reserve.mib = 10'240;
    reserve.formula = "the 10,240 of a device of more than 60 GiB";
  }
  if (launch.has_deepep) {
    reserve.mib += 2048;
    reserve.formula += " + 2,048";
  }
  reserve.formula += " MiB";
  return reserve;
}

Millionths sglang_auto_fraction(const SglangLaunch& launch) {
  const auto device = static_cast<double>(launch.device_mib);
  const double fraction = std::round((device - sglang_reserve(launch).mib) / device * 1000) / 1000;
  return std::llround(fraction * vision_factor(launch) * 1000) * kFractionStep;
}

Bytes sglang_request_table_bytes(std::int64_t requests, Tokens context_length) {
  return (requests + 1) * (context_length + 4) * 4;
}

}  // namespace plimsoll
