#include "worker/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "worker/sample/philox.h"

namespace plimsoll {
namespace {

// Below this a temperature means the largest logit; above it, but below kTemperatureMin, it is
// raised, since dividing by less would overflow.
constexpr double kTemperatureGreedy = 1e-5;
constexpr double kTemperatureMin = 0.01;
// Candidates that are sorted first; top_p rarely reaches further.
constexpr std::size_t kSortedAtFirst = 64;

struct Largest {
  std::int32_t id = -1;
  float logit = -std::numeric_limits<float>::infinity();
};

// Nothing where a logit is NaN or +inf, or all are -inf.
std::optional<Largest> largest(std::span<const float> logits) {
  Largest best;
  bool sound = true;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    sound &= logit <= std::numeric_limits<float>::max();  // false for NaN, too
    if (logit > best.logit) best = {static_cast<std::int32_t>(i), logit};
  }
  if (!sound || best.id < 0) return std::nullopt;
  return best;
}

Error unsound() {
  return internal_error(
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
  if (!request.output.empty() &&
      (sampling.frequency_penalty != 0 || sampling.presence_penalty != 0)) {
    std::ranges::copy(logits, adjusted_.begin());
    penalties_.apply(request.output, sampling.frequency_penalty, sampling.presence_penalty,
                     adjusted_);
    logits = adjusted_;
  }
  const std::optional<Largest> best = largest(logits);
  if (!best) return unsound();
  if (sampling.temperature < kTemperatureGreedy) return best->id;
  const double temperature = std::max(sampling.temperature, kTemperatureMin);
  const double uniform = uniform_at(sampling.seed, static_cast<std::uint64_t>(request.position));
  const bool all = sampling.min_p <= 0 && sampling.top_p >= 1 &&
                   (sampling.top_k <= 0 || sampling.top_k >= vocab_);
  if (all) return draw_from_all(logits, best->logit, temperature, uniform);
  return draw_from_some(logits, best->logit, request, temperature, uniform);
}

std::int32_t Sampler::draw_from_all(std::span<const float> logits, float max, double temperature,
                                    double uniform) {
  double mass = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weights_[i] = std::exp((static_cast<double>(logits[i]) - max) / temperature);
    mass += weights_[i];
  }
  const double target = uniform * mass;
  double sum = 0;
  std::int32_t last = 0;  // the last with any weight: rounding may leave sum just below target
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (weights_[i] <= 0) continue;
    sum += weights_[i];
    last = static_cast<std::int32_t>(i);
    if (sum > target) break;
  }
  return last;
}

void Sampler::sort_front(std::size_t sorted, std::size_t count) {
  const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted);
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  if (end < candidates_.end()) std::nth_element(begin, end, candidates_.end(), before);
  std::sort(begin, end, before);
}

std::int32_t Sampler::draw_from_some(std::span<const float> logits, float max,
                                     const Request& request, double temperature, double uniform) {
  const Sampling& sampling = request.sampling;
  // min_p: p >= min_p * p_max, that is (l - max) / T >= log(min_p).
  const double floor = sampling.min_p > 0
                           ? static_cast<double>(max) + temperature * std::log(sampling.min_p)
                           : -std::numeric_limits<double>::infinity();
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= floor) candidates_.push_back({logits[i], static_cast<std::int32_t>(i)});
  }
  std::size_t kept = candidates_.size();
  if (sampling.top_k > 0 && static_cast<std::uint64_t>(sampling.top_k) < kept) {
    kept = static_cast<std::size_t>(sampling.top_k);
    sort_front(0, kept);
    candidates_.resize(kept);
  }
  const auto weight = [&](const Candidate& candidate) {
    return std::exp((static_cast<double>(candidate.logit) - max) / temperature);
  };
  double mass = 0;
  for (const Candidate& candidate : candidates_) mass += weight(candidate);
  // Walk down from the best, sorting no further than needed, until top_p of the mass is kept.
  std::size_t sorted = 0;
  std::size_t count = 0;
  double kept_mass = 0;
  while (count < kept && (count == 0 || kept_mass < sampling.top_p * mass)) {
    if (count == sorted) {
      const std::size_t next = std::min(kept, std::max(kSortedAtFirst, sorted * 4));
      sort_front(sorted, next);
      sorted = next;
    }
    weights_[count] = weight(candidates_[count]);
    kept_mass += weights_[count];
    ++count;
  }
  const double target = uniform * kept_mass;
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += weights_[i];
    if (sum > target) return candidates_[i].id;
  }
  return candidates_[count - 1].id;
}

Result<TokenLogprob> Sampler::logprob(std::span<const float> logits, std::int32_t token,
                                      std::int64_t alternatives) {
  CHECK(std::ssize(logits) == vocab_ && token >= 0 && token < vocab_);
  const std::optional<Largest> best = largest(logits);
  if (!best) return unsound();
  double mass = 0;
  for (const float logit : logits) mass += std::exp(static_cast<double>(logit) - best->logit);
  const double log_mass = std::log(mass);
  const auto of = [&](float logit) { return static_cast<double>(logit) - best->logit - log_mass; };
  TokenLogprob result;
  result.id = token;
  result.logprob = of(logits[static_cast<std::size_t>(token)]);
  const auto count = static_cast<std::size_t>(
      std::clamp<std::int64_t>(alternatives, 0, std::min(kLogprobsMax, vocab_)));
  if (count == 0) return result;
  // The best so far, best first; nearly every logit fails against the last of them.
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{logits[i], static_cast<std::int32_t>(i)};
    if (candidates_.size() == count) {
      if (!before(candidate, candidates_.back())) continue;
      candidates_.pop_back();
    }
    candidates_.insert(std::ranges::upper_bound(candidates_, candidate, before), candidate);
  }
  for (const Candidate& candidate : candidates_) {
    result.top_ids.push_back(candidate.id);
    result.top_logprobs.push_back(of(candidate.logit));
  }
  return result;
}

}  // namespace plimsoll
