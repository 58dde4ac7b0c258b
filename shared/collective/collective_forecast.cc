#include "shared/collective/collective_forecast.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "shared/collective/link_cost.h"
#include "shared/memory/memory_terms.h"
#include "shared/memory/plan_problem.h"
#include "shared/model/weight_share.h"

namespace plimsoll {
namespace {

constexpr Bytes kBf16 = 2;                       // as servers add up
constexpr Bytes kF64 = 8;                        // as our kernels do
constexpr std::int64_t kReductionsPerLayer = 2;  // attention output, feed-forward output
constexpr double kReached = 0.85;  // of its memory's rate: what kernels that read weights reach
// Of a graph's nodes: with them 61 layers take the 1.5 ms beside reading and exchanging that
// Kimi-K2 is reckoned with in public estimates.
constexpr std::int64_t kLaunchesPerLayer = 12;
constexpr double kLaunchUs = 2;
constexpr double kSamplingUs = 36;
constexpr double kBytesPerUs = 1e6;  // of a byte a second
constexpr double kPullRanksMin = 3;

ShardPlan shards_of(const MemoryPlan& plan) {
  ShardPlan shards;
  for (const RankPlan& rank : plan.ranks) {
    if (rank.replica == 0) shards.ranks.push_back(rank.shard);
  }
  return shards;
}

// Different experts that as many tokens use, where each picks at random.
double experts_read(const ExpertShape& experts, std::int64_t tokens) {
  const auto count = static_cast<double>(experts.count);
  const double missed = 1 - static_cast<double>(experts.used) / count;
  return count * (1 - std::pow(missed, static_cast<double>(tokens)));
}

Bytes weights_read(const ModelSpec& model, const ShardPlan& shards, std::size_t rank,
                   std::int64_t requests) {
  double sum = 0;
  for (const PartShare& share : rank_share(model, shards, rank, WeightPlacement{}).parts) {
    const auto bytes = static_cast<double>(share.sharded + share.replicated);
    switch (share.part) {
      case WeightPart::embedding:  // a row a token, unless it is the head too
        if (model.tied_head) sum += bytes;
        break;
      case WeightPart::experts:
        sum += bytes * experts_read(model.experts, requests) /
               static_cast<double>(model.experts.count);
        break;
      case WeightPart::vision:
      case WeightPart::projector:
      case WeightPart::mtp:
      case WeightPart::file_only:
        break;
      default:
        sum += bytes;
    }
  }
  return static_cast<Bytes>(sum);
}

// The slowest rank decides. nullopt: a device whose memory rate is not known, or a model whose
// weights are not.
std::optional<StepForecast> step_of(const Machine& machine, const ModelSpec& model,
                                    const MemoryPlan& plan, std::int64_t requests) {
  if (model.groups.empty()) return std::nullopt;
  const ShardPlan shards = shards_of(plan);
  StepForecast step{.requests = requests};
  step.kv = requests * kForecastContext * plan.kv.bytes_per_token;
  double rate = 0;
  for (std::size_t rank = 0; rank < shards.ranks.size(); ++rank) {
    const auto device = static_cast<std::size_t>(plan.ranks[rank].device);
    if (device >= machine.devices.size() || machine.devices[device].memory_rate <= 0) {
      return std::nullopt;
    }
    const double own_rate = machine.devices[device].memory_rate;
    const Bytes weights = weights_read(model, shards, rank, requests);
    const double us = static_cast<double>(weights + step.kv) / (kReached * own_rate / kBytesPerUs);
    if (us <= step.read_us) continue;
    step.read_us = us;
    step.weights = weights;
    rate = own_rate;
  }
  step.launch_us = static_cast<double>(model.layers * kLaunchesPerLayer) * kLaunchUs + kSamplingUs;
  step.formula = fmt::format(
      "({} of weights + {} x {} tokens x {} B of KV) / ({} x {:.4g} GB/s) = {} µs; {} layers x {} "
      "launches x {} µs + {} µs = {} µs",
      format_bytes(step.weights), requests, grouped(kForecastContext),
      grouped(plan.kv.bytes_per_token), kReached, rate / 1e9, grouped(std::llround(step.read_us)),
      model.layers, kLaunchesPerLayer, kLaunchUs, kSamplingUs,
      grouped(std::llround(step.launch_us)));
  return step;
}

struct Sizes {
  Bytes row = 0;
  Tokens prefill_tokens = 0;
};

template <typename Time>
BackendForecast forecast_of(std::string name, std::string about, std::string source,
                            const Sizes& sizes, Time time) {
  return {.name = std::move(name),
          .about = std::move(about),
          .row_bytes = sizes.row,
          .one = time(sizes.row),
          .many = time(kForecastRequests * sizes.row),
          .prefill = time(sizes.prefill_tokens * sizes.row),
          .source = std::move(source)};
}

BackendForecast forecast_kind(CollectiveKind kind, const Machine& machine, std::int64_t ranks,
                              const Sizes& sizes) {
  const LinkCost link = link_cost(machine);
  const std::string name = collective_name(kind);
  const std::string about = collective_about(kind);
  const int major = machine.devices.front().compute_major;
  switch (kind) {
    case CollectiveKind::fused:
      return forecast_of(name, about, link.source, sizes,
                         [&](Bytes bytes) { return fused_shot(link, ranks, bytes); });
    case CollectiveKind::nccl: {
      const RingCost cost = nccl_cost(machine);
      return forecast_of(name, about + ", as it decides by itself", cost.source, sizes,
                         [&](Bytes bytes) { return ring(cost, ranks, bytes); });
    }
    case CollectiveKind::nccl_symmetric:
      return forecast_of(name, about, "NCCL 2.28.9's own bases; " + link.source, sizes,
                         [&](Bytes bytes) { return symmetric(link, ranks, bytes, major); });
    default:
      return forecast_of(name, about, link.source, sizes,
                         [&](Bytes bytes) { return best_shot(link, ranks, bytes); });
  }
}

// What is no backend of ours and yet worth knowing: NCCL told to use peer access, and what other
// servers do.
void add_others(const Machine& machine, std::int64_t ranks, const Sizes& sizes,
                const Sizes& of_servers, CollectiveForecast& forecast) {
  if (!has_peer_access(machine)) return;
  const PeerPath path = peer_path(machine);
  if (path == PeerPath::host_bridge || path == PeerPath::sockets) {
    const RingCost cost = nccl_peer_cost(machine);
    forecast.backends.push_back(forecast_of(
        "nccl, P2P", "the same with NCCL_P2P_LEVEL=SYS, set once the test of peer access passed",
        cost.source, sizes, [&](Bytes bytes) { return ring(cost, ranks, bytes); }));
  }
  if (machine.link == DeviceLink::nvlink || static_cast<double>(ranks) < kPullRanksMin) return;
  const LinkCost link = link_cost(machine);
  forecast.backends.push_back(forecast_of(
      "pull", "what a custom all-reduce made for NVLink does over PCIe; not one of ours",
      "fitted to 38 tokens/s of Kimi-K2.5 on 8 such cards", of_servers,
      [&](Bytes bytes) { return many_block_pull(link, ranks, bytes); }));
}

void add_speed(const CollectiveForecast& forecast, BackendForecast& backend) {
  if (forecast.step) {
    backend.tokens_per_s =
        tokens_per_second(1, forecast.step->us(), forecast.reductions, backend.one.us);
  }
  if (forecast.step_many) {
    backend.tokens_per_s_many = tokens_per_second(kForecastRequests, forecast.step_many->us(),
                                                  forecast.reductions, backend.many.us);
  }
}

}  // namespace

double tokens_per_second(std::int64_t requests, double step_us, std::int64_t reductions,
                         double reduce_us) {
  return static_cast<double>(requests) * 1e6 /
         (step_us + static_cast<double>(reductions) * reduce_us);
}

std::optional<CollectiveForecast> forecast_collectives(const Machine& machine,
                                                       const ModelSpec& model,
                                                       const MemoryPlan& plan,
                                                       const OptionSet& options) {
  if (plan.tp < 2 || plan.ranks.empty() || plan.ranks.front().device < 0 ||
      machine.devices.empty()) {
    return std::nullopt;
  }
  CollectiveForecast forecast{.choice = collective_choice_text(options),
                              .ranks = plan.tp,
                              .reductions = kReductionsPerLayer * model.layers,
                              .value_bytes = runs_our_kernels(machine, model) ? kF64 : kBf16,
                              .prefill_tokens = plan.decisions.step_tokens_max};
  const std::string link = device_link_name(machine.link);
  const std::string path = peer_path_name(peer_path(machine));
  forecast.link =
      fmt::format("{}: {}", path == link ? link : link + ", " + path, link_cost(machine).source);
  forecast.step = step_of(machine, model, plan, 1);
  forecast.step_many = step_of(machine, model, plan, kForecastRequests);
  const Sizes sizes{model.hidden * forecast.value_bytes, forecast.prefill_tokens};
  const Sizes of_servers{model.hidden * kBf16, forecast.prefill_tokens};
  for (const CollectiveOffer& offer : collective_offers(machine, options.values, plan.tp)) {
    if (offer.kind == CollectiveKind::shm) continue;
    forecast.backends.push_back(forecast_kind(offer.kind, machine, plan.tp, sizes));
    forecast.backends.back().is_there = offer.is_there;
    forecast.backends.back().why_not = offer.why_not;
  }
  add_others(machine, plan.tp, sizes, of_servers, forecast);
  for (BackendForecast& backend : forecast.backends) add_speed(forecast, backend);
  std::ranges::stable_sort(forecast.backends, [](const auto& a, const auto& b) {
    return a.is_there != b.is_there ? a.is_there : a.one.us < b.one.us;
  });
  return forecast;
}

}  // namespace plimsoll
