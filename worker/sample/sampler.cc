#include "worker/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "worker/sample/philox.h"
#include "worker/sample/softmax.h"

namespace plimsoll {
namespace {

// Below this a temperature means the largest logit; above it, but below kTemperatureMin, it is
// raised, since dividing by less would overflow.
constexpr double kTemperatureGreedy = 1e-5;
constexpr double kTemperatureMin = 0.01;
// Candidates that are sorted first; top_p rarely reaches further.
constexpr std::size_t kSortedAtFirst = 64;

Error unsound() {
  return corrupt(
      "the model's output has no usable numbers for this request (NaN or infinite logits); its "
      "weights may be damaged");
}

}  // namespace

Status check_sampling(const Sampling& sampling) {
  struct Bound {
    const char* name;
    double value;
    double least;
    double most;
  };
  const Bound bounds[] = {
      {"temperature", sampling.temperature, 0, 100},
      {"top_p", sampling.top_p, 0, 1},
      {"min_p", sampling.min_p, 0, 1},
      {"frequency_penalty", sampling.frequency_penalty, -100, 100},
      {"presence_penalty", sampling.presence_penalty, -100, 100},
      {"top_k", static_cast<double>(sampling.top_k), 0, 1e18},
      {"logprobs", static_cast<double>(sampling.logprobs), -1, static_cast<double>(kLogprobsMax)},
  };
  for (const Bound& bound : bounds) {
    if (bound.value >= bound.least && bound.value <= bound.most) continue;  // false for NaN
    return invalid(fmt::format("{} is {}; expected {} to {}", bound.name, bound.value, bound.least,
                               bound.most));
  }
  return {};
}

cuda::RowSample row_sample(const Sampling& sampling, Tokens position, std::int64_t vocab) {
  const bool has_top_k = sampling.top_k > 0 && sampling.top_k < vocab;
  const bool is_all = sampling.min_p <= 0 && sampling.top_p >= 1 && !has_top_k;
  return {.kind = sampling.temperature < kTemperatureGreedy ? cuda::RowSample::greedy
                  : is_all                                  ? cuda::RowSample::all
                                                            : cuda::RowSample::some,
          .top_k = has_top_k ? static_cast<std::int32_t>(sampling.top_k) : 0,
          .scale = static_cast<float>(1 / std::max(sampling.temperature, kTemperatureMin)),
          .min_p = sampling.min_p,
          .top_p = sampling.top_p,
          .uniform = uniform_at(sampling.seed, static_cast<std::uint64_t>(position))};
}

bool is_penalised(const Sampling& sampling, std::span<const std::int32_t> output) {
  return !output.empty() && (sampling.frequency_penalty != 0 || sampling.presence_penalty != 0);
}

Sampler::Sampler(std::int64_t vocab)
    : vocab_(vocab),
      penalties_(vocab),
      adjusted_(static_cast<std::size_t>(vocab)),
      weights_(static_cast<std::size_t>(vocab)) {
  candidates_.reserve(static_cast<std::size_t>(vocab));
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits, const Request& request) {
  CHECK(std::ssize(logits) == vocab_);
  const Sampling& sampling = request.sampling;
  if (is_penalised(sampling, request.output)) {
    std::ranges::copy(logits, adjusted_.begin());
    penalties_.apply(request.output, sampling.frequency_penalty, sampling.presence_penalty,
                     adjusted_);
    logits = adjusted_;
  }
  const std::optional<float> max = largest_logit(logits);
  if (!max) return unsound();
  const cuda::RowSample how = row_sample(sampling, request.position, vocab_);
  if (how.kind == cuda::RowSample::greedy) {
    return static_cast<std::int32_t>(std::ranges::find(logits, *max) - logits.begin());
  }
  const Draw draw{.logits = logits,
                  .sampling = sampling,
                  .max = *max,
                  .scale = how.scale,
                  .uniform = how.uniform};
  return how.kind == cuda::RowSample::all ? draw_from_all(draw) : draw_from_some(draw);
}

std::int32_t Sampler::draw_from_all(const Draw& draw) {
  const double target = draw.uniform * softmax_weights(draw.logits, draw.max, draw.scale, weights_);
  const std::span<const float> weights = weights_;
  // The chunk that it lies in; the last with any weight: rounding may leave the sum below the
  // target.
  double sum = 0;
  double base = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < weights.size(); at += kMassChunk) {
    const double mass =
        mass_of_chunk(weights.subspan(at, std::min(kMassChunk, weights.size() - at)));
    if (mass <= 0) continue;
    begin = at;
    base = sum;
    sum += mass;
    if (sum > target) break;
  }
  std::int32_t last = static_cast<std::int32_t>(begin);
  const std::size_t end = std::min(begin + kMassChunk, weights.size());
  for (std::size_t i = begin; i < end; ++i) {
    if (weights[i] <= 0) continue;
    base += static_cast<double>(weights[i]);
    last = static_cast<std::int32_t>(i);
    if (base > target) break;
  }
  return last;
}

void Sampler::sort_front(std::size_t sorted, std::size_t count) {
  const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted);
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  if (end < candidates_.end()) std::nth_element(begin, end, candidates_.end(), before);
  std::sort(begin, end, before);
}

// A heap whose front is the worst of the best: nearly every logit fails against it.
void Sampler::collect_best(std::span<const float> logits, std::size_t count) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{logits[i], static_cast<std::int32_t>(i)};
    if (candidates_.size() == count) {
      if (!before(candidate, candidates_.front())) continue;
      std::ranges::pop_heap(candidates_, before);
      candidates_.pop_back();
    }
    candidates_.push_back(candidate);
    std::ranges::push_heap(candidates_, before);
  }
  std::ranges::sort_heap(candidates_, before);
}

double Sampler::choose_top_k(const Draw& draw, std::size_t count) {
  collect_best(draw.logits, count);
  double mass = 0;
  std::size_t kept = 0;
  for (; kept < candidates_.size(); ++kept) {
    const Candidate& candidate = candidates_[kept];
    float& weight = weights_[static_cast<std::size_t>(candidate.id)];
    weight = softmax_weight(candidate.logit, draw.max, draw.scale);
    if (static_cast<double>(weight) < draw.sampling.min_p) break;
    mass += static_cast<double>(weight);
  }
  candidates_.resize(std::max<std::size_t>(kept, 1));
  return mass;
}

double Sampler::choose_by_weight(const Draw& draw) {
  double mass = softmax_weights(draw.logits, draw.max, draw.scale, weights_);
  const auto min_p = static_cast<float>(draw.sampling.min_p);
  if (min_p > 0) {
    for (float& weight : weights_) weight = weight >= min_p ? weight : 0;
    mass = mass_of(weights_);
  }
  // All that weigh less than this come to less than half of what top_p leaves out.
  const double spare = std::max(1 - draw.sampling.top_p, 0.0) * mass;
  const float least =
      std::max(min_p, static_cast<float>(0.5 * spare / static_cast<double>(vocab_)));
  candidates_.clear();
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] < least) continue;
    candidates_.push_back({draw.logits[i], static_cast<std::int32_t>(i)});
  }
  return mass;
}

std::int32_t Sampler::draw_from_some(const Draw& draw) {
  const Sampling& sampling = draw.sampling;
  const bool has_top_k = sampling.top_k > 0 && sampling.top_k < vocab_;
  const double mass = has_top_k ? choose_top_k(draw, static_cast<std::size_t>(sampling.top_k))
                                : choose_by_weight(draw);
  const auto weight = [&](std::size_t index) {
    return static_cast<double>(weights_[static_cast<std::size_t>(candidates_[index].id)]);
  };
  // Walk down from the best, sorting no further than needed, until top_p of the mass is kept.
  std::size_t sorted = has_top_k ? candidates_.size() : 0;
  std::size_t count = 0;
  double kept_mass = 0;
  while (count < candidates_.size() && (count == 0 || kept_mass < sampling.top_p * mass)) {
    if (count == sorted) {
      const std::size_t next = std::min(candidates_.size(), std::max(kSortedAtFirst, sorted * 4));
      sort_front(sorted, next);
      sorted = next;
    }
    kept_mass += weight(count++);
  }
  const double target = draw.uniform * kept_mass;
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += weight(i);
    if (sum > target) return candidates_[i].id;
  }
  return candidates_[count - 1].id;
}

Result<TokenLogprob> Sampler::logprob(std::span<const float> logits, std::int32_t token,
                                      std::int64_t alternatives) {
  CHECK(std::ssize(logits) == vocab_ && token >= 0 && token < vocab_);
  const std::optional<float> max = largest_logit(logits);
  if (!max) return unsound();
  const double log_mass = std::log(softmax_weights(logits, *max, 1, weights_));
  const auto of = [&](float logit) {
    return static_cast<double>(logit) - static_cast<double>(*max) - log_mass;
  };
  TokenLogprob result;
  result.id = token;
  result.logprob = of(logits[static_cast<std::size_t>(token)]);
  const std::int64_t count =
      std::clamp<std::int64_t>(alternatives, 0, std::min(kLogprobsMax, vocab_));
  if (count == 0) return result;
  collect_best(logits, static_cast<std::size_t>(count));
  for (const Candidate& candidate : candidates_) {
    result.top_ids.push_back(candidate.id);
    result.top_logprobs.push_back(of(candidate.logit));
  }
  return result;
}

}  // namespace plimsoll
