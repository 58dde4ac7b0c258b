#include "shared/collective/collective_choice.h"

#include <algorithm>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/collective/link_cost.h"
#include "shared/memory/collective_bytes.h"
#include "shared/options/collective_option.h"
#include "shared/options/device_choice.h"

namespace plimsoll {
namespace {

bool is_custom(CollectiveKind kind) {
  return kind == CollectiveKind::ipc || kind == CollectiveKind::fused;
}

bool needs_access(CollectiveKind kind) {
  return is_custom(kind) || kind == CollectiveKind::nccl_symmetric;
}

// Of ranks on this machine's CPUs. "" where it is there.
std::string why_not_on_cpus(CollectiveKind kind) {
  return kind == CollectiveKind::shm ? "" : "it is for ranks on GPUs";
}

bool is_host_cuda(const Options& options) {
  const Result<DeviceChoice> choice = parse_device_choice(options.devices);
  return choice && choice->kind == DeviceKind::cuda_host;
}

// CUDA's kernels on the CPU share memory as on GPUs, and NCCL needs these.
std::string why_not_on_host_cuda(CollectiveKind kind) {
  if (is_custom(kind)) return "";
  return kind == CollectiveKind::shm ? "it is for ranks on CPUs" : "it needs GPUs";
}

std::string why_not_on_gpus(CollectiveKind kind, const Machine& machine, const Options& options,
                            std::int64_t tp) {
  if (kind == CollectiveKind::shm) return "it is for ranks on CPUs";
  if (needs_access(kind) && !has_peer_access(machine)) {
    return "the driver allows no peer access between these GPUs";
  }
  if (is_custom(kind) && options.disable_custom_all_reduce == "on") {
    return "disable-custom-all-reduce is on";
  }
  if (is_custom(kind) && tp > kIpcRanks) {
    return fmt::format("it exchanges between {} ranks at most, and tp is {}", kIpcRanks, tp);
  }
  if (kind == CollectiveKind::nccl_symmetric) return "this build has no code for it";
  return "";
}

std::string list(const std::vector<CollectiveOffer>& offers) {
  std::vector<std::string> names;
  for (const CollectiveOffer& offer : offers) {
    if (offer.is_there) names.emplace_back(collective_name(offer.kind));
  }
  return join(names, ", ");
}

}  // namespace

const char* collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::shm:
      return "shm";
    case CollectiveKind::ipc:
      return "ipc";
    case CollectiveKind::fused:
      return "fused";
    case CollectiveKind::nccl:
      return "nccl";
    case CollectiveKind::nccl_symmetric:
      return "nccl_symmetric";
  }
  return "shm";
}

const char* collective_about(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::shm:
      return "shared memory of CPU ranks";
    case CollectiveKind::ipc:
      return "kernels of ours in memory that peers map";
    case CollectiveKind::fused:
      return "the same with residual and norm in one kernel";
    case CollectiveKind::nccl:
      return "NVIDIA's library";
    case CollectiveKind::nccl_symmetric:
      return "NVIDIA's library on symmetric windows";
  }
  return "";
}

std::vector<CollectiveOffer> collective_offers(const Machine& machine, const Options& options,
                                               std::int64_t tp) {
  std::vector<CollectiveOffer> offers;
  for (const CollectiveKind kind : kCollectiveKinds) {
    CollectiveOffer offer{.kind = kind};
    if (is_host_cuda(options)) {
      offer.why_not = why_not_on_host_cuda(kind);
    } else {
      offer.why_not = machine.devices.empty() ? why_not_on_cpus(kind)
                                              : why_not_on_gpus(kind, machine, options, tp);
    }
    offer.is_there = offer.why_not.empty();
    offers.push_back(std::move(offer));
  }
  return offers;
}

Status check_collective(const Machine& machine, const OptionSet& options, std::int64_t tp) {
  const Options& values = options.values;
  if (values.collective == "auto") return {};
  const std::vector<CollectiveOffer> offers = collective_offers(machine, values, tp);
  const auto found = std::ranges::find_if(offers, [&](const CollectiveOffer& offer) {
    return values.collective == collective_name(offer.kind);
  });
  if (found == offers.end() || found->is_there) return {};
  return invalid(fmt::format("collective: {} is not there: {}; there is {}", values.collective,
                             found->why_not, list(offers)));
}

Status check_collective_code(const Machine& machine, const OptionSet& options, std::int64_t tp) {
  const Options& values = options.values;
  const bool on_gpus = !machine.devices.empty() && !machine.devices.front().is_simulated;
  if (tp < 2 || (!on_gpus && !is_host_cuda(values))) return {};
  if (!on_gpus && values.disable_custom_all_reduce == "on") {
    return invalid(
        "disable-custom-all-reduce: CUDA kernels on the CPU have nothing else than ipc and fused; "
        "leave it off, or use tp 1");
  }
  if (on_gpus && values.collective == "auto" && !adds_up_by_nccl(values) &&
      !has_peer_access(machine)) {
    return invalid(
        "collective: auto is fused here, and the driver allows no peer access between these GPUs; "
        "add --collective nccl");
  }
  if (values.collective != "nccl_symmetric") return {};
  return invalid(
      fmt::format("collective: this build has no code for {}; there is ipc, fused and nccl",
                  values.collective));
}

std::string collective_choice_text(const OptionSet& options) {
  const auto of = [&](std::string_view name) {
    const Origin origin = options.origin(name);
    return origin.place.empty() ? std::string(source_name(origin.source)) : origin.place;
  };
  const Options& values = options.values;
  const bool is_off = values.disable_custom_all_reduce == "on";
  std::string text = values.collective == "auto"
                         ? std::string(is_off ? "auto: nccl" : "auto: fused, by a test at start")
                         : fmt::format("{} ({})", values.collective, of("collective"));
  if (is_off) text += fmt::format("; no kernels of ours ({})", of("disable-custom-all-reduce"));
  return text;
}

}  // namespace plimsoll
