#include "worker/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/sample/philox.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kVocab = 1000;

std::vector<float> random_logits(std::uint32_t seed, double spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = static_cast<float>(normal(random));
  return logits;
}

// The set that min_p, top_k and top_p leave, by a full sort, with its probabilities.
std::vector<double> reference_distribution(std::span<const float> logits,
                                           const Sampling& sampling) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](auto a, auto b) { return logits[a] > logits[b]; });
  std::vector<double> p(logits.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    p[i] = std::exp((static_cast<double>(logits[i]) - logits[order[0]]) / sampling.temperature);
  }
  std::size_t keep = p.size();
  while (keep > 1 && p[order[keep - 1]] < sampling.min_p) --keep;
  if (sampling.top_k > 0) keep = std::min(keep, static_cast<std::size_t>(sampling.top_k));
  double mass = 0;
  for (std::size_t i = 0; i < keep; ++i) mass += p[order[i]];
  double sum = 0;
  std::size_t count = 0;
  while (count < keep && (count == 0 || sum < sampling.top_p * mass)) sum += p[order[count++]];
  std::vector<double> result(p.size(), 0);
  for (std::size_t i = 0; i < count; ++i) result[order[i]] = p[order[i]] / sum;
  return result;
}

void expect_draws_like(const std::vector<float>& logits, const Sampling& sampling) {
  Sampler sampler(kVocab);
  const auto expected = reference_distribution(logits, sampling);
  std::vector<double> counts(kVocab, 0);
  constexpr int kDraws = 2'000;
  for (int i = 0; i < kDraws; ++i) {
    const auto token = sampler.sample(logits, {.sampling = sampling, .output = {}, .position = i});
    ASSERT_TRUE(token);
    ASSERT_GT(expected[static_cast<std::size_t>(*token)], 0) << "token " << *token;
    ++counts[static_cast<std::size_t>(*token)];
  }
  double distance = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    distance += std::abs(counts[i] / kDraws - expected[i]);
  }
  const auto support = static_cast<double>(
      std::ranges::count_if(expected, [](double probability) { return probability > 0; }));
  // The mean of the sum of |binomial deviations| is below sqrt(support / draws).
  EXPECT_LT(distance, 1.3 * std::sqrt(support / kDraws));
}

TEST(Sampler, DrawsFromTheDistributionThatTheOptionsLeave) {
  struct Case {
    double temperature, top_p, min_p;
    std::int64_t top_k;
  };
  for (const Case& c :
       {Case{1, 1, 0, 0}, Case{0.7, 1, 0, 0}, Case{1, 0.9, 0, 0}, Case{1, 1, 0.05, 0},
        Case{1, 1, 0, 7}, Case{1.5, 0.8, 0.01, 40}, Case{3, 0.99, 0, 0}, Case{1, 0, 0, 0}}) {
    SCOPED_TRACE(testing::Message() << "temperature " << c.temperature << " top_p " << c.top_p
                                    << " min_p " << c.min_p << " top_k " << c.top_k);
    Sampling sampling;
    sampling.temperature = c.temperature;
    sampling.top_p = c.top_p;
    sampling.min_p = c.min_p;
    sampling.top_k = c.top_k;
    sampling.seed = 11;
    expect_draws_like(random_logits(5), sampling);
  }
}

TEST(Sampler, ZeroTemperatureTakesTheLargestAndTiesGoToTheLowestId) {
  Sampler sampler(4);
  Sampling sampling;
  sampling.temperature = 0;
  const std::vector<float> logits = {1, 3, 3, 2};
  EXPECT_EQ(*sampler.sample(logits, {.sampling = sampling, .output = {}, .position = 0}), 1);
}

TEST(Sampler, TinyTemperaturesDoNotOverflow) {
  Sampler sampler(3);
  Sampling sampling;
  sampling.temperature = 1e-4;
  const std::vector<float> logits = {1e30F, -1e30F, 0};
  EXPECT_EQ(*sampler.sample(logits, {.sampling = sampling, .output = {}, .position = 0}), 0);
}

TEST(Sampler, PenaltiesComeBeforeEverythingElse) {
  Sampler sampler(3);
  Sampling sampling;
  sampling.temperature = 0;
  sampling.frequency_penalty = 1;
  const std::vector<float> logits = {5, 4.5F, 0};
  const std::vector<std::int32_t> output = {0};
  EXPECT_EQ(*sampler.sample(logits, {.sampling = sampling, .output = output, .position = 0}), 1);
}

TEST(Sampler, SeedAndPositionDecideTheDraw) {
  Sampler one(kVocab);
  Sampler other(kVocab);
  const auto logits = random_logits(3);
  Sampling sampling;
  sampling.seed = 77;
  std::vector<std::int32_t> forward, backward;
  for (Tokens i = 0; i < 50; ++i) {
    forward.push_back(*one.sample(logits, {.sampling = sampling, .output = {}, .position = i}));
    backward.push_back(
        *other.sample(logits, {.sampling = sampling, .output = {}, .position = 49 - i}));
  }
  std::ranges::reverse(backward);
  EXPECT_EQ(forward, backward);
}

TEST(Sampler, LogprobsAreOfTheRawDistributionBestFirst) {
  Sampler sampler(kVocab);
  const auto logits = random_logits(9);
  double mass = 0;
  for (const float logit : logits) mass += std::exp(static_cast<double>(logit));
  std::vector<std::int64_t> order(kVocab);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](auto a, auto b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  const auto result = sampler.logprob(logits, 123, 5);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->id, 123);
  EXPECT_NEAR(result->logprob, static_cast<double>(logits[123]) - std::log(mass), 1e-6);
  EXPECT_EQ(result->top_ids, std::vector<std::int64_t>(order.begin(), order.begin() + 5));
  EXPECT_NEAR(result->top_logprobs[0],
              static_cast<double>(logits[static_cast<std::size_t>(order[0])]) - std::log(mass),
              1e-6);
  EXPECT_TRUE(std::ranges::is_sorted(result->top_logprobs, std::greater<>()));
}

TEST(Sampler, EqualLogitsRankByIdAmongTheAlternatives) {
  Sampler sampler(5);
  const std::vector<float> logits = {1, 2, 1, 2, 1};
  EXPECT_EQ(sampler.logprob(logits, 0, 3)->top_ids, (std::vector<std::int64_t>{1, 3, 0}));
}

TEST(Sampler, NaNFailsTheRequest) {
  Sampler sampler(3);
  Sampling sampling;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& logits : {std::vector<float>{1, nan, 2}, std::vector<float>{1, infinity, 2},
                             std::vector<float>{-infinity, -infinity, -infinity}}) {
    const auto token = sampler.sample(logits, {.sampling = sampling, .output = {}, .position = 0});
    ASSERT_FALSE(token);
    EXPECT_EQ(token.error().code, Code::corrupt);
    EXPECT_FALSE(sampler.logprob(logits, 0, 1));
  }
  const std::vector<float> masked = {-infinity, 1, -infinity};
  EXPECT_EQ(*sampler.sample(masked, {.sampling = sampling, .output = {}, .position = 0}), 1);
}

TEST(Sampler, NamesAnOptionOutOfItsRange) {
  Sampling sampling;
  EXPECT_TRUE(check_sampling(sampling));
  sampling.top_p = 1.5;
  const Status status = check_sampling(sampling);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "top_p is 1.5; expected 0 to 1");
  sampling.top_p = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(check_sampling(sampling));
}

}  // namespace
}  // namespace plimsoll
