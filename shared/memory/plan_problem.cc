#include "shared/memory/plan_problem.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "shared/machine/machine_file.h"
#include "shared/memory/collective_bytes.h"
#include "shared/memory/rank_ledger.h"
#include "shared/model/packed_rank.h"
#include "shared/model/weight_share.h"
#include "shared/options/assumption.h"
#include "shared/options/collective_option.h"
#include "shared/options/device_choice.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kHostGraphBatch = 8;  // as on the smallest GPUs

bool is_ours(const Machine& machine, const ModelSpec& model) {
  return machine.devices.empty() || runs_our_kernels(machine, model);
}

// Simulated devices have workers of ours, whatever they are to be.
bool has_ring(const Machine& machine, const ModelSpec& model) {
  return is_ours(machine, model) || machine.devices.front().is_simulated;
}

Status check_options(const ModelSpec& model, const Options& options) {
  if (options.context_length && *options.context_length > model.context_length) {
    return invalid(
        fmt::format("context-length: {} is more than the {} tokens that this model was "
                    "trained for",
                    grouped(*options.context_length), grouped(model.context_length)));
  }
  if (options.mem_fraction_static && options.gpu_memory_utilization) {
    return invalid(
        "mem-fraction-static and gpu-memory-utilization both size KV, each of another total; give "
        "one");
  }
  return {};
}

Status check_cpu(const ModelSpec& model, const Options& options) {
  const DeviceChoice choice = TRY(parse_device_choice(options.devices));
  const bool on_cuda = choice.kind == DeviceKind::cuda_host;
  if (on_cuda) TRY(check_cuda_options(options));
  if (options.kv_cache_dtype == "bf16" || options.kv_cache_dtype == "fp8") {
    return invalid(
        fmt::format("kv-cache-dtype: CPU ranks keep keys and values as f16 or int8, not {}; leave "
                    "it auto",
                    options.kv_cache_dtype));
  }
  if (options.ep > 1) return invalid("ep: CPU ranks do not divide experts; leave it 1");
  if (!options.draft_model.empty()) {
    return invalid("draft-model: CPU ranks do not use a draft model; leave it empty");
  }
  if (options.cuda_graph_max_bs.value_or(0) > 0 && !on_cuda) {
    return invalid("cuda-graph-max-bs: CPU ranks capture no graphs; leave it auto");
  }
  if (!model.not_loaded.empty()) return invalid("CPU ranks cannot load it: " + model.not_loaded);
  if (!model.weights.all().empty()) return {};
  return invalid(
      "CPU ranks load GGUF files; this model can be planned for GPUs (--devices simulated:SIZE, or "
      "--machine FILE)");
}

Status check_devices(const Machine& machine, const ModelSpec& model, const Options& options) {
  const std::int64_t ranks = options.tp * options.dp;
  if (ranks > std::ssize(machine.devices)) {
    return invalid(
        fmt::format("tp {} x dp {} are {} ranks, each on a device of its own, and there "
                    "{} {}; lower tp or dp",
                    options.tp, options.dp, ranks, machine.devices.size() == 1 ? "is" : "are",
                    machine.devices.size()));
  }
  if (options.ep > 1 && model.experts.count == 0) {
    return invalid(
        fmt::format("ep: {} divides experts, and this model has none; leave it 1", options.ep));
  }
  if (options.ep > 1 && options.ep > model.experts.count) {
    return invalid(fmt::format("ep: {} ranks cannot divide {} experts; it can be 1 to {}",
                               options.ep, model.experts.count, model.experts.count));
  }
  if (options.tp % options.ep != 0 && options.ep % options.tp != 0) {
    return invalid(
        fmt::format("ep: {} groups of experts and tp {} ranks do not divide each other; ep can be "
                    "a divisor of tp or a multiple of it",
                    options.ep, options.tp));
  }
  if (ranks % options.ep != 0) {
    return invalid(
        fmt::format("ep: {} ranks are no whole number of groups of {}", ranks, options.ep));
  }
  return {};
}

std::optional<Term> term_of(std::string_view name) {
  for (std::size_t i = 0; i < kTermCount; ++i) {
    if (name == term_name(static_cast<Term>(i))) return static_cast<Term>(i);
  }
  return std::nullopt;
}

constexpr std::array<Term, 8> kCpuTerms = {Term::weights,   Term::tables, Term::activations,
                                           Term::workspace, Term::logits, Term::collective,
                                           Term::process,   Term::kv};

// Figures beside the terms' own.
struct Assumed {
  std::optional<Bytes> free;
  std::optional<Bytes> total;
  std::optional<Bytes> kv_token;
  std::optional<Bytes> draft_kv_token;
};

Trust kv_trust(const Assumed& assumed) {
  return assumed.kv_token || assumed.draft_kv_token ? Trust::assumed : Trust::computed;
}

// What is assumed wins over what was learned.
Result<Assumed> take_figures(const Machine& machine, const Options& options,
                             std::vector<Override>& overrides) {
  Assumed assumed;
  for (const Assumption& one : TRY(parse_assumptions(options.assume))) {
    const bool must_be_some = one.term == "kv-token" || one.term == "total" || one.term == "free";
    if (must_be_some && one.bytes <= 0) {
      return invalid(fmt::format("assume: {} is 0; expected at least a byte", one.term));
    }
    if (one.term == "free") assumed.free = one.bytes;
    if (one.term == "total") assumed.total = one.bytes;
    if (one.term == "kv-token") assumed.kv_token = one.bytes;
    if (one.term == "draft-kv-token") assumed.draft_kv_token = one.bytes;
    const std::optional<Term> term = term_of(one.term);
    if (term) overrides.push_back({*term, one.bytes, Trust::assumed, "by --assume", {}});
  }
  for (const LearnedTerm& learned : machine.learned) {
    const std::optional<Term> term = term_of(learned.term);
    if (!term && learned.from == kOfDescription) {
      return invalid(fmt::format("learned: the plan has no term '{}'", learned.term));
    }
    if (!term || *term == Term::kv) continue;
    const bool is_taken = std::ranges::any_of(
        overrides, [&](const Override& figure) { return figure.term == *term; });
    if (is_taken) continue;
    overrides.push_back({*term, learned.bytes, Trust::learned,
                         fmt::format("measured before, in {}", learned.from), learned.graph_batch});
  }
  return assumed;
}

void take_kv_rule(const Options& options, FitInputs& fit) {
  if (options.kv_cache_bytes) {
    fit.rule = KvRule::bytes;
    fit.kv_bytes = *options.kv_cache_bytes;
  } else if (options.mem_fraction_static) {
    fit.rule = KvRule::static_fraction;
    fit.fraction = *options.mem_fraction_static;
  } else if (options.gpu_memory_utilization) {
    fit.rule = KvRule::utilization;
    fit.fraction = *options.gpu_memory_utilization;
  }
}

// Terms that only ranks on devices have, and what only a device has.
Status check_cpu_assumptions(const FitInputs& fit, const Assumed& assumed) {
  if (assumed.total) {
    return invalid("assume: total is of a device, and these ranks are on CPUs; free is theirs too");
  }
  for (const Override& figure : fit.overrides) {
    const bool is_cpu_term = std::ranges::find(kCpuTerms, figure.term) != kCpuTerms.end();
    if (is_cpu_term || figure.trust != Trust::assumed) continue;
    return invalid(
        fmt::format("assume: ranks on CPUs have no {}; what a device would take is "
                    "planned with --machine FILE or --devices simulated:SIZE",
                    term_name(figure.term)));
  }
  return {};
}

// --- CPU ranks -------------------------------------------------------------------------------

const std::vector<Bytes>& packed_weights(const ModelSpec& model, const ShardPlan& shards,
                                         PackedWeights& packed) {
  std::vector<Bytes>& ranks = packed[std::ssize(shards.ranks)];
  if (ranks.empty()) {
    for (const RankShard& shard : shards.ranks) ranks.push_back(packed_rank_bytes(model, shard));
  }
  return ranks;
}

Status add_cpu_ranks(const Machine& machine, const ModelSpec& model, const Options& options,
                     const Assumed& assumed, PackedWeights& packed_of, PlanProblem& problem) {
  TRY(check_cpu_assumptions(problem.fit, assumed));
  problem.budget = decide_budget(machine, options);
  if (assumed.free) {
    problem.budget.per_rank = problem.budget.per_rank_max = *assumed.free;
    problem.budget.available = *assumed.free * options.tp * options.dp;
    problem.budget.available_source = problem.budget.source = "--assume free";
    problem.budget.note.reset();
    if (options.device_memory) {
      problem.budget.per_rank = std::min(*options.device_memory, *assumed.free);
      problem.budget.source = "--device-memory";
    }
  }
  Bytes budget = problem.budget.per_rank;
  const bool by_rule = problem.fit.rule != KvRule::demand && !options.device_memory;
  if (by_rule) {  // whoever says how much does not want half of it
    budget = problem.budget.per_rank_max;
    problem.budget.per_rank = budget;
    problem.budget.source = problem.budget.available_source;
  }
  const DeviceChoice choice = TRY(parse_device_choice(options.devices));
  // The same rank of every replica maps the same packed weights, which the daemon holds.
  const bool is_shared = choice.kind != DeviceKind::cuda_host &&
                         std::ranges::none_of(problem.fit.overrides, [](const Override& figure) {
                           return figure.term == Term::weights;
                         });
  const std::int64_t sharers = is_shared ? options.dp : 1;
  for (const RankShard& shard : problem.shards.ranks) {
    const bool is_leader = problem.fit.ranks.empty();
    const Bytes packed = packed_weights(model, problem.shards, packed_of)[problem.fit.ranks.size()];
    problem.fit.ranks.push_back(
        {.shard = shard,
         .weights = ceil_div(packed, sharers),
         .weight_sharers = sharers,
         .shared_weights = sharers > 1 ? packed : 0,
         .threads = problem.places.front().threads,
         .leader = is_leader,
         .index = std::ssize(problem.fit.ranks),
         .budget = budget,
         .on_cuda = choice.kind == DeviceKind::cuda_host,
         .kv_token_bytes = assumed.kv_token.value_or(kv_token_bytes(model, shard, problem.kv_type)),
         .kv_trust = kv_trust(assumed)});
  }
  if (choice.kind == DeviceKind::cuda_host) {
    problem.fit.graph_batch_default = kHostGraphBatch;
    problem.fit.cuda_graph_max_bs = options.cuda_graph_max_bs;
  }
  const std::size_t ranks = problem.places.size();
  for (std::size_t i = 0; i < ranks; ++i) problem.case_of.push_back(i % problem.fit.ranks.size());
  problem.fit.free_before_weights = budget;
  return {};
}

// --- ranks on devices ------------------------------------------------------------------------

// All that terms depend on. Of devices that differ in what is free the tightest decides.
auto kind_of(const Device& device) {
  return std::make_tuple(device.memory_total, device.cuda_total, device.compute_major,
                         device.compute_minor, device.multiprocessors, device.bar1, device.context,
                         device.is_unified);
}

bool same_shape(const RankShape& a, const RankShape& b) {
  return a.weights == b.weights && a.replicated == b.replicated && a.absorbed == b.absorbed &&
         a.vision == b.vision && a.draft == b.draft && a.kv_token_bytes == b.kv_token_bytes &&
         a.shard.heads.size() == b.shard.heads.size() &&
         a.shard.kv_heads.size() == b.shard.kv_heads.size() &&
         a.shard.ffn.size() == b.shard.ffn.size() &&
         a.shard.expert_ffn.size() == b.shard.expert_ffn.size() &&
         a.shard.shared_ffn.size() == b.shard.shared_ffn.size() &&
         a.shard.experts == b.shard.experts;
}

// What a rank of the replica holds of the model, whatever its device.
std::vector<RankShape> replica_shapes(const ModelSpec& model, const ShardPlan& shards,
                                      KvType kv_type, const Assumed& assumed) {
  std::vector<RankShape> shapes;
  for (std::size_t rank = 0; rank < shards.ranks.size(); ++rank) {
    const RankShare share = rank_share(model, shards, rank, WeightPlacement{});
    RankShape shape;
    shape.shard = shards.ranks[rank];
    shape.vision = share.part(WeightPart::vision) + share.part(WeightPart::projector);
    shape.absorbed = share.absorbed;
    shape.weights = share.total() - share.absorbed - shape.vision;
    shape.replicated = share.replicated() - shape.vision;
    if (shards.ranks.size() == 1) shape.replicated = 0;
    shape.leader = rank == 0;
    shape.kv_token_bytes = assumed.kv_token.value_or(kv_token_bytes(model, shape.shard, kv_type));
    shape.kv_trust = kv_trust(assumed);
    shapes.push_back(shape);
  }
  return shapes;
}

// The draft model is divided over as many ranks as it has heads for.
Status add_draft(const ModelSpec& draft, const Options& options, KvType kv_type,
                 const Assumed& assumed, std::vector<RankShape>& shapes) {
  const ShardPlan shards =
      TRY_CONTEXT("draft-model: ", plan_device_shards(draft, std::min(options.tp, draft.heads), 1));
  for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
    const std::size_t own = rank % shards.ranks.size();
    shapes[rank].draft_of_all = draft.weight_bytes();
    shapes[rank].draft_ranks = std::ssize(shards.ranks);
    shapes[rank].draft = rank_share(draft, shards, own, WeightPlacement{}).total();
    shapes[rank].kv_token_bytes +=
        assumed.draft_kv_token.value_or(kv_token_bytes(draft, shards.ranks[own], kv_type));
  }
  return {};
}

void group_ranks(const std::vector<RankShape>& shapes, std::int64_t ranks, PlanProblem& problem) {
  std::vector<std::size_t> first_like;  // of each shape, itself where none before is the same
  for (const RankShape& shape : shapes) {
    const auto same = std::ranges::find_if(
        shapes, [&](const RankShape& other) { return same_shape(shape, other); });
    first_like.push_back(static_cast<std::size_t>(same - shapes.begin()));
  }
  std::map<std::pair<std::size_t, decltype(kind_of(Device{}))>, std::size_t> cases;
  for (std::int64_t i = 0; i < ranks; ++i) {
    const Device& device = problem.devices[static_cast<std::size_t>(i)];
    const std::size_t own = static_cast<std::size_t>(i) % shapes.size();
    const auto [found, is_new] =
        cases.try_emplace({first_like[own], kind_of(device)}, problem.fit.ranks.size());
    problem.case_of.push_back(found->second);
    if (!is_new) continue;
    problem.fit.ranks.push_back(shapes[own]);
    problem.fit.ranks.back().index = i;
    problem.fit.ranks.back().device = &device;
  }
}

void set_budgets(const Options& options, const Assumed& assumed, PlanProblem& problem) {
  FitInputs& fit = problem.fit;
  fit.free_before_weights = std::numeric_limits<Bytes>::max();
  std::vector<Bytes> start_of;
  for (RankShape& rank : fit.ranks) {
    start_of.push_back(start_bytes(ledger_bytes(fit, rank, step_shape(fit, 1, 1))));
    rank.budget = rank.free_at_start = std::numeric_limits<Bytes>::max();
  }
  for (std::size_t i = 0; i < problem.case_of.size(); ++i) {
    const Device& device = problem.devices[i];
    RankShape& rank = fit.ranks[problem.case_of[i]];
    DeviceBudget budget =
        decide_device_budget(device, start_of[problem.case_of[i]], assumed.free, options);
    fit.free_before_weights = std::min(fit.free_before_weights, budget.free_before_weights);
    rank.free_at_start = std::min(rank.free_at_start, budget.free_before_weights);
    if (budget.limit < rank.budget) {
      rank.budget = budget.limit;
      rank.index = static_cast<std::int64_t>(i);
      rank.device = &device;
    }
    problem.device_budgets.push_back(std::move(budget));
  }
}

Status add_device_ranks(const Machine& machine, const ModelSpec& model, const Options& options,
                        const ModelSpec* draft, const Assumed& assumed, PlanProblem& problem) {
  std::vector<RankShape> shapes = replica_shapes(model, problem.shards, problem.kv_type, assumed);
  if (draft != nullptr) {
    TRY(add_draft(*draft, options, problem.kv_type, assumed, shapes));
  } else if (assumed.draft_kv_token) {
    for (RankShape& shape : shapes) shape.kv_token_bytes += *assumed.draft_kv_token;
  }
  FitInputs& fit = problem.fit;
  fit.on_devices = true;
  fit.setting = {.tp = options.tp,
                 .ep = options.ep,
                 .ep_dispatch_tokens = options.ep_dispatch_tokens,
                 .link = machine.link,
                 .by_nccl = adds_up_by_nccl(options)};
  problem.devices = machine.devices;
  if (assumed.total) {
    for (Device& device : problem.devices) {
      device.memory_total = *assumed.total;
      device.cuda_total = *assumed.total;
    }
  }
  for (const Device& device : problem.devices) {
    if (assumed.free.value_or(0) <= device.memory_total) continue;
    return invalid(fmt::format("assume: free is {}, and a device has {} in all",
                               format_exact_bytes(*assumed.free),
                               format_exact_bytes(device.memory_total)));
  }
  group_ranks(shapes, options.tp * options.dp, problem);
  Bytes smallest = std::numeric_limits<Bytes>::max();
  for (const RankShape& rank : fit.ranks) {
    smallest = std::min(smallest, rank.device->memory_total);
  }
  fit.requests_default = kRunningRequestsDefaultDevice;
  fit.step_tokens_default = default_step_tokens(smallest);
  fit.graph_batch_default = default_graph_batch(smallest, options.tp);
  if (const std::optional<Bytes> edge = next_smaller_defaults(smallest)) {
    fit.smaller = {.step_tokens = default_step_tokens(*edge),
                   .graph_batch = default_graph_batch(*edge, options.tp),
                   .above = smallest - *edge};
  }
  fit.cuda_graph_max_bs = options.cuda_graph_max_bs;
  if (runs_our_kernels(machine, model)) {
    for (RankShape& rank : fit.ranks) {
      rank.on_cuda = true;
      rank.weights = packed_rank_bytes(model, rank.shard);
    }
  }
  set_budgets(options, assumed, problem);
  return {};
}

Result<KvType> kv_type_of(const Machine& machine, const ModelSpec& model, const Options& options) {
  if (options.kv_cache_dtype == "auto") return is_ours(machine, model) ? KvType::f16 : KvType::bf16;
  const std::optional<KvType> type = kv_type_from_name(options.kv_cache_dtype);
  if (type) return *type;
  return invalid(
      fmt::format("kv-cache-dtype: '{}' is no type of keys and values", options.kv_cache_dtype));
}

}  // namespace

bool runs_our_kernels(const Machine& machine, const ModelSpec& model) {
  return !machine.devices.empty() && machine.name.empty() &&
         !machine.devices.front().is_simulated && model.can_be_loaded();
}

Status check_cuda_options(const Options& options) {
  if (options.tp > kIpcRanks) {
    return invalid(fmt::format(
        "tp: at most {} ranks with CUDA kernels add up; make it less, or use --devices cpu",
        kIpcRanks));
  }
  if (options.kv_cache_dtype != "auto" && options.kv_cache_dtype != "f16") {
    return invalid(
        "kv-cache-dtype: CUDA kernels keep keys and values as f16; leave it auto, or use --devices "
        "cpu");
  }
  if (options.activations == "int8") return {};
  return invalid(
      "activations: CUDA kernels take int8 activations; leave it int8, or use --devices cpu");
}

Result<PlanProblem> make_problem(const Machine& machine, const ModelSpec& model,
                                 const Options& options, const ModelSpec* draft,
                                 PackedWeights* packed) {
  const bool on_devices = !machine.devices.empty();
  TRY(check_options(model, options));
  if (!on_devices) TRY(check_cpu(model, options));
  PlanProblem problem;
  if (on_devices) TRY(check_devices(machine, model, options));
  FitInputs& fit = problem.fit;
  fit.is_ours = is_ours(machine, model);
  fit.has_ring = has_ring(machine, model);
  problem.shards = fit.is_ours ? TRY(plan_shards(model, options.tp))
                               : TRY(plan_device_shards(model, options.tp, options.ep));
  problem.places = place_ranks(machine, options.tp * options.dp, options.threads);
  problem.kv_type = TRY(kv_type_of(machine, model, options));
  problem.kv_copies = kv_copies(model, problem.shards);
  fit.model = &model;
  fit.tp = options.tp;
  fit.context_length = options.context_length;
  fit.max_total_tokens = options.max_total_tokens;
  fit.max_running_requests = options.max_running_requests;
  fit.chunked_prefill_size = options.chunked_prefill_size;
  take_kv_rule(options, fit);
  const Assumed assumed = TRY(take_figures(machine, options, fit.overrides));
  if (on_devices) {
    TRY(add_device_ranks(machine, model, options, draft, assumed, problem));
  } else {
    PackedWeights own;
    PackedWeights& kept = packed == nullptr ? own : *packed;
    TRY(add_cpu_ranks(machine, model, options, assumed, kept, problem));
  }
  return problem;
}

}  // namespace plimsoll
