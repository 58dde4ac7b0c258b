#include "shared/memory/memory_fit.h"

#include <algorithm>
#include <limits>

#include "shared/memory/search.h"
#include "shared/memory/step_message.h"

namespace plimsoll {
namespace {

TermInputs terms(const FitInputs& in, const RankShape& rank, const StepShape& step) {
  return {.model = *in.model, .rank = rank, .step = step, .tp = in.tp()};
}

// On the tightest rank; negative where not even the other rows fit.
Blocks blocks_that_fit(const FitInputs& in, const StepShape& step) {
  Blocks least = std::numeric_limits<Blocks>::max();
  for (const RankShape& rank : in.ranks) {
    const Bytes left = in.budget - fixed_bytes(terms(in, rank, step));
    if (left < 0) return -1;
    least = std::min(least, left / kv_block_bytes(*in.model, rank.shard));
  }
  return least;
}

// The longest that max_total_tokens can hold, and the model's own.
Tokens context_ceiling(const FitInputs& in) {
  if (!in.max_total_tokens) return in.model->context_length;
  const Tokens whole_blocks = *in.max_total_tokens / kKvBlockTokens * kKvBlockTokens;
  return std::max<Tokens>(1, std::min(in.model->context_length, whole_blocks));
}

Tokens context_floor(const FitInputs& in) { return std::min(kContextFloor, context_ceiling(in)); }

// KV blocks that are wanted: by max_total_tokens, else by demand; no more than a step can name.
Blocks blocks_wanted(const FitInputs& in, Tokens context, std::int64_t requests) {
  const Blocks wanted = in.max_total_tokens ? *in.max_total_tokens / kKvBlockTokens
                                            : requests * blocks_of_tokens(context);
  return std::min(wanted, step_blocks_max(in, step_shape(in, context, requests)));
}

bool all_wanted_fits(const FitInputs& in, Tokens context, std::int64_t requests) {
  return blocks_that_fit(in, step_shape(in, context, requests)) >=
         blocks_wanted(in, context, requests);
}

// The longest that fits with that many requests, in whole KV blocks or the model's own length; the
// floor where none does.
Tokens decide_context(const FitInputs& in, std::int64_t requests) {
  if (in.context_length) return *in.context_length;
  const Tokens ceiling = context_ceiling(in);
  if (all_wanted_fits(in, ceiling, requests)) return ceiling;
  const Tokens floor = context_floor(in);
  const std::int64_t block =
      largest_that(floor / kKvBlockTokens, ceiling / kKvBlockTokens, [&](std::int64_t blocks) {
        return all_wanted_fits(in, std::max(floor, blocks * kKvBlockTokens), requests);
      });
  return std::max(floor, block * kKvBlockTokens);
}

std::int64_t decide_requests(const FitInputs& in, Tokens context) {
  if (in.max_running_requests) return *in.max_running_requests;
  return largest_that(1, kRunningRequestsDefault, [&](std::int64_t requests) {
    return all_wanted_fits(in, context, requests);
  });
}

}  // namespace

Blocks blocks_of_tokens(Tokens tokens) { return ceil_div(tokens, kKvBlockTokens); }

StepShape step_shape(const FitInputs& in, Tokens context_length, std::int64_t requests) {
  StepShape step;
  step.context_length = context_length;
  step.max_running_requests = requests;
  // Every running request must get its row in a step.
  step.step_tokens_max = std::max(in.chunked_prefill_size.value_or(kStepTokensDefault), requests);
  step.logit_rows_max = std::min(step.step_tokens_max, std::max(requests, kLogitRowsMin));
  return step;
}

Blocks step_blocks_max(const FitInputs& in, const StepShape& step) {
  if (in.tp() == 1) return std::numeric_limits<Blocks>::max();
  return ring_blocks_max(step.step_tokens_max, step.max_running_requests, step.logit_rows_max);
}

Fit decide_fit(const FitInputs& in) {
  const Tokens context =
      decide_context(in, in.max_running_requests.value_or(kRunningRequestsDefault));
  const std::int64_t requests = decide_requests(in, context);
  Fit fit{.step = step_shape(in, context, requests), .kv_blocks = 0, .fits = false};
  const Blocks room = blocks_that_fit(in, fit.step);
  const Blocks wanted = blocks_wanted(in, context, requests);
  const Blocks needed = in.max_total_tokens ? wanted : blocks_of_tokens(context);
  fit.fits = room >= needed && wanted >= blocks_of_tokens(context);
  fit.kv_blocks = fit.fits ? std::min(wanted, room) : needed;
  return fit;
}

Fit least_fit(const FitInputs& in) {
  const Tokens context = in.context_length.value_or(context_floor(in));
  const std::int64_t requests = in.max_running_requests.value_or(1);
  return {.step = step_shape(in, context, requests),
          .kv_blocks = in.max_total_tokens ? blocks_wanted(in, context, requests)
                                           : blocks_of_tokens(context),
          .fits = false};
}

Bytes rank_bytes(const FitInputs& in, const RankShape& rank, const Fit& fit) {
  return fixed_bytes(terms(in, rank, fit.step)) +
         fit.kv_blocks * kv_block_bytes(*in.model, rank.shard);
}

}  // namespace plimsoll
