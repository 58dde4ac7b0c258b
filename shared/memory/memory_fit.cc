#include "shared/memory/memory_fit.h"

#include <algorithm>
#include <limits>

#include "shared/memory/binding_ranks.h"
#include "shared/memory/rank_ledger.h"
#include "shared/memory/search.h"
#include "shared/memory/step_message.h"

namespace plimsoll {
namespace {

constexpr Blocks kNoBound = std::numeric_limits<Blocks>::max();

// -1 for less than nothing, so that half a block missing is not rounded to none.
Blocks whole_blocks(Bytes bytes, const RankShape& rank) {
  return bytes < 0 ? -1 : bytes / rank_block_bytes(rank);
}

// On the tightest rank; negative where not even the other rows fit.
Blocks blocks_that_fit(const FitInputs& in, const StepShape& step) {
  Blocks least = kNoBound;
  for (const RankShape& rank : in.ranks) {
    const Bytes left = rank.budget - ledger_bytes(in, rank, step).sum();
    if (left < 0) return -1;
    least = std::min(least, whole_blocks(left, rank));
  }
  return least;
}

// That the rule gives, on the rank that gets least.
Blocks blocks_by_rule(const FitInputs& in, const StepShape& step) {
  if (in.rule == KvRule::demand) return kNoBound;
  Blocks least = kNoBound;
  for (const RankShape& rank : in.ranks) {
    least = std::min(least, whole_blocks(kv_bytes_by_rule(in, rank, step), rank));
  }
  return least;
}

// The longest that max_total_tokens can hold, and the model's own.
Tokens context_ceiling(const FitInputs& in) {
  if (!in.max_total_tokens) return in.model->context_length;
  const Tokens whole = *in.max_total_tokens / kKvBlockTokens * kKvBlockTokens;
  return std::max<Tokens>(1, std::min(in.model->context_length, whole));
}

struct KvNeed {
  Blocks wanted = 0;  // how many there will be, where they fit
  Blocks needed = 0;  // that must fit
  bool holds_one = false;
};

// By demand all of it must fit before an undecided context or number of requests is left alone; on
// devices, where requests share what there is, one request of the full context must.
KvNeed kv_need(const FitInputs& in, const StepShape& step, bool for_all) {
  const Blocks one = blocks_of_tokens(step.context_length);
  const Blocks named = step_blocks_max(in, step);
  KvNeed need;
  if (in.rule == KvRule::demand) {
    need.wanted = in.max_total_tokens ? *in.max_total_tokens / kKvBlockTokens
                                      : step.max_running_requests * one;
    need.wanted = std::min(need.wanted, named);
    // On devices max-total-tokens caps what is left, as servers do; on CPUs it is asked for.
    const bool is_all_needed = !in.on_devices && (in.max_total_tokens || for_all);
    need.needed = is_all_needed ? need.wanted : std::min(one, need.wanted);
  } else {
    Blocks given = blocks_by_rule(in, step);
    if (in.max_total_tokens) given = std::min(given, *in.max_total_tokens / kKvBlockTokens);
    need.wanted = std::min(given, named);
    need.needed = std::max<Blocks>(0, given);
  }
  need.holds_one = need.wanted >= one;
  return need;
}

bool is_enough(const FitInputs& in, Tokens context, std::int64_t requests) {
  const StepShape step = step_shape(in, context, requests);
  const KvNeed need = kv_need(in, step, true);
  // The ring may name less than demand without the context being too long for one request.
  const bool holds = in.rule == KvRule::demand && !in.on_devices ? true : need.holds_one;
  return holds && blocks_that_fit(in, step) >= need.needed;
}

// The longest that fits with that many requests, in whole KV blocks or the model's own length; the
// floor where none does.
Tokens decide_context(const FitInputs& in, std::int64_t requests) {
  if (in.context_length) return *in.context_length;
  const Tokens ceiling = context_ceiling(in);
  if (is_enough(in, ceiling, requests)) return ceiling;
  const Tokens floor = context_floor(in);
  const std::int64_t block =
      largest_that(floor / kKvBlockTokens, ceiling / kKvBlockTokens, [&](std::int64_t blocks) {
        return is_enough(in, std::max(floor, blocks * kKvBlockTokens), requests);
      });
  return std::max(floor, block * kKvBlockTokens);
}

// What was lowered to make room: KV then stays at what one request needs, until all of it is as
// it was asked for. So no memory that is added ever shrinks KV.
enum class Lowered { nothing, requests_or_step };

std::int64_t decide_requests(const FitInputs& in, Tokens context) {
  if (in.max_running_requests) return *in.max_running_requests;
  return largest_that(1, in.requests_default,
                      [&](std::int64_t requests) { return is_enough(in, context, requests); });
}

// Of a rule that gives what is left: SGLang's fraction and bytes say how much, whatever is beside.
bool takes_what_is_left(const FitInputs& in) {
  return in.rule == KvRule::utilization || (in.rule == KvRule::demand && in.on_devices);
}

// To the byte, not to what is left of whole blocks: what a utilization claims does not depend on
// what else is lowered, and neither must this.
bool claim_is_within(const FitInputs& in, const StepShape& step, Blocks wanted) {
  if (in.rule != KvRule::utilization) return true;
  return std::ranges::all_of(in.ranks, [&](const RankShape& rank) {
    const Bytes kv = kv_bytes_by_rule(in, rank, step);
    if (whole_blocks(kv, rank) > wanted) return true;  // another rank decides
    return kv + ledger_bytes(in, rank, step).sum() <= rank.budget;
  });
}

Fit fit_of(const FitInputs& in, Tokens context, std::int64_t requests, Lowered lowered) {
  Fit fit{.step = step_shape(in, context, requests)};
  const Blocks room = blocks_that_fit(in, fit.step);
  const KvNeed need = kv_need(in, fit.step, false);
  const bool is_held = lowered != Lowered::nothing && takes_what_is_left(in);
  const Blocks most = is_held ? blocks_of_tokens(context) : kNoBound;
  const bool can_start =
      in.rule != KvRule::utilization || std::ranges::all_of(in.ranks, [&](const RankShape& rank) {
        return rank.device == nullptr ||
               share_of_bytes_up(rank.device->total_to_share(), in.fraction) <= rank.free_at_start;
      });
  fit.holds_one = need.holds_one;
  fit.is_within = room >= need.needed && can_start && claim_is_within(in, fit.step, need.wanted);
  fit.fits = fit.holds_one && fit.is_within;
  fit.kv_blocks = fit.fits ? std::min({need.wanted, room, most}) : std::max<Blocks>(0, need.needed);
  return fit;
}

// With the step that is the default: the longest context, or fewer requests at the shortest.
Fit decide_with_step(const FitInputs& in, Lowered lowered) {
  const std::int64_t asked = in.max_running_requests.value_or(in.requests_default);
  const Tokens context = decide_context(in, asked);
  const std::int64_t requests = decide_requests(in, context);
  return fit_of(in, context, requests, requests < asked ? Lowered::requests_or_step : lowered);
}

// Whether all requests that are asked for can run beside one another with this step.
bool keeps_requests(const FitInputs& in, const Fit& fit) {
  return fit.fits &&
         fit.step.max_running_requests == in.max_running_requests.value_or(in.requests_default);
}

}  // namespace

Tokens context_wanted(const FitInputs& in) {
  return in.context_length.value_or(context_ceiling(in));
}

Tokens context_floor(const FitInputs& in) { return std::min(kContextFloor, context_ceiling(in)); }

Blocks blocks_of_tokens(Tokens tokens) { return ceil_div(tokens, kKvBlockTokens); }

StepShape step_shape(const FitInputs& in, Tokens context_length, std::int64_t requests) {
  StepShape step;
  step.context_length = context_length;
  step.max_running_requests = requests;
  // Every running request must get its row in a step.
  step.step_tokens_max =
      std::max(in.chunked_prefill_size.value_or(in.step_tokens_default), requests);
  step.logit_rows_max = std::min(step.step_tokens_max, std::max(requests, kLogitRowsMin));
  if (in.graph_batch_default > 0) {
    step.cuda_graph_max_bs =
        in.cuda_graph_max_bs.value_or(std::min(in.graph_batch_default, requests));
  }
  return step;
}

Blocks step_blocks_max(const FitInputs& in, const StepShape& step) {
  if (in.tp == 1 || !in.has_ring) return kNoBound;
  return ring_blocks_max(step.step_tokens_max, step.max_running_requests, step.logit_rows_max);
}

Bytes kv_bytes_by_rule(const FitInputs& in, const RankShape& rank, const StepShape& step) {
  if (in.rule == KvRule::bytes) return in.kv_bytes;
  const TermBytes bytes = ledger_bytes(in, rank, step);
  if (in.rule == KvRule::static_fraction) {
    return share_of_bytes(in.free_before_weights, in.fraction) - static_bytes(bytes);
  }
  // What is there before a worker looks is charged to nobody, and the margin is ours.
  const Bytes total =
      rank.device == nullptr ? in.free_before_weights : rank.device->total_to_share();
  return share_of_bytes_up(total, in.fraction) -
         (bytes.sum() - start_bytes(bytes) - bytes[Term::margin]);
}

namespace {

// The context gives way first, then the step (of devices), then requests.
Fit decide_with_defaults(const FitInputs& in) {
  const Fit fit = decide_with_step(in, Lowered::nothing);
  if (!in.on_devices || in.chunked_prefill_size || keeps_requests(in, fit)) return fit;
  FitInputs smaller = in;
  Fit lowered = fit;
  while (smaller.step_tokens_default > kStepTokensFloorDevice) {
    smaller.step_tokens_default = std::max(smaller.step_tokens_default / 2, kStepTokensFloorDevice);
    smaller.context_length = in.context_length.value_or(context_floor(in));
    lowered = decide_with_step(smaller, Lowered::requests_or_step);
    if (keeps_requests(in, lowered)) return lowered;
  }
  return lowered.fits ? lowered : fit;
}

// Those that are looked at: all, or the few that decide.
using Looked = FitInputs (*)(const FitInputs&);

// Where the smallest devices are so much smaller, with the defaults of those.
Fit decide_on_smaller(const FitInputs& in, Looked looked) {
  FitInputs smaller = in;
  smaller.step_tokens_default = in.smaller->step_tokens;
  smaller.graph_batch_default = in.smaller->graph_batch;
  const auto total = [](const RankShape& rank) { return rank.device->memory_total; };
  const Bytes smallest = total(*std::ranges::min_element(in.ranks, {}, total));
  std::vector<Device> devices;
  devices.reserve(in.ranks.size());
  for (RankShape& rank : smaller.ranks) {
    if (total(rank) > smallest) continue;
    devices.push_back(*rank.device);
    devices.back().cuda_total = rank.device->total_to_share() - in.smaller->above;
    devices.back().memory_total -= in.smaller->above;
    rank.device = &devices.back();
    rank.budget -= in.smaller->above;
    rank.free_at_start -= in.smaller->above;
  }
  return decide_with_defaults(looked(smaller));
}

// A slightly larger device may have defaults that take more than it has more: until it has enough
// for both, it keeps those of the smaller one, and no less KV.
Fit decide(const FitInputs& in, Looked looked) {
  FitInputs kept = looked(in);
  const Fit fit = decide_with_defaults(kept);
  const bool is_all_given = in.chunked_prefill_size && in.cuda_graph_max_bs;
  if (!in.smaller || is_all_given || !takes_what_is_left(in)) return fit;
  const Fit before = decide_on_smaller(in, looked);
  if (!before.fits || (fit.fits && fit.kv_blocks >= before.kv_blocks)) return fit;
  kept.step_tokens_default = before.step.step_tokens_max;
  kept.graph_batch_default = in.smaller->graph_batch;
  Fit same =
      fit_of(kept, before.step.context_length, before.step.max_running_requests, Lowered::nothing);
  same.kv_blocks = std::min(same.kv_blocks, before.kv_blocks);
  return same.fits ? same : fit;
}

}  // namespace

Fit decide_fit(const FitInputs& in) { return decide(in, binding_ranks); }

Fit decide_fit_of_all(const FitInputs& in) {
  return decide(in, [](const FitInputs& all) { return all; });
}

Fit least_fit(const FitInputs& in) {
  FitInputs least = in;
  if (in.on_devices) {
    least.step_tokens_default = std::min(in.step_tokens_default, kStepTokensFloorDevice);
  }
  const Tokens context = in.context_length.value_or(context_floor(in));
  const std::int64_t requests = in.max_running_requests.value_or(1);
  Fit fit{.step = step_shape(least, context, requests)};
  const KvNeed need = kv_need(least, fit.step, false);
  fit.holds_one = need.holds_one;
  fit.kv_blocks = std::max<Blocks>(0, need.needed);
  return fit;
}

Bytes rank_bytes(const FitInputs& in, const RankShape& rank, const Fit& fit) {
  return ledger_bytes(in, rank, fit.step).sum() + fit.kv_blocks * rank_block_bytes(rank);
}

}  // namespace plimsoll
