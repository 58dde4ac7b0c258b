#include "worker/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_features.h"
#include "shared/base/file.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"
#include "tests/worker/rank_group.h"
#include "tools/tiny_model/requantise.h"

namespace plimsoll {
namespace {

// "The quick brown fox jumps over the lazy dog. In 1969, Neil Armstrong became ..."
const std::vector<std::int32_t> kParagraph = {
    504,  2365,  6354, 16438, 27003, 690,   260,   23790, 2767, 30,   533,  216, 33,   41,
    38,   41,    28,   27639, 24955, 2163,  260,   808,   1055, 288,  4549, 335, 260,  8872,
    28,   284,   384,  1137,  338,   357,   436,   582,   1165, 1833, 327,  555, 28,   582,
    8455, 19894, 327,  15475, 30,    19268, 14870, 314,   260,  980,  411,  527, 2654, 2109,
    722,  8118,  288,  919,   1114,  429,   3118,  7600,  284,  913,  30};
// "The capital of France is"
const std::vector<std::int32_t> kFrance = {504, 3575, 282, 4649, 314};

// Log probabilities after each token of the paragraph but the last, the text cut into chunks.
std::vector<std::vector<float>> paragraph_logprobs(RankGroup& group, std::size_t chunk) {
  std::vector<std::vector<float>> rows;
  for (std::size_t begin = 0; begin < kParagraph.size(); begin += chunk) {
    const std::size_t end = std::min(begin + chunk, kParagraph.size());
    StepPlan plan;
    append_rows(plan,
                {.tokens = kParagraph, .begin = begin, .end = end, .logit_rows = end - begin});
    for (const auto& logits : group.run(plan)) {
      if (rows.size() + 1 == kParagraph.size()) break;
      const float most = *std::ranges::max_element(logits);
      double mass = 0;
      for (const float logit : logits) mass += std::exp(static_cast<double>(logit - most));
      const auto shift = static_cast<float>(static_cast<double>(most) + std::log(mass));
      rows.emplace_back(logits.begin(), logits.end());
      for (float& value : rows.back()) value -= shift;
    }
  }
  return rows;
}

// Mean over the predictions of the next tokens.
double nll_of(const std::vector<std::vector<float>>& logprobs) {
  double sum = 0;
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    sum -= static_cast<double>(logprobs[i][static_cast<std::size_t>(kParagraph[i + 1])]);
  }
  return sum / static_cast<double>(logprobs.size());
}

double paragraph_nll(RankGroup& group, std::size_t chunk) {
  return nll_of(paragraph_logprobs(group, chunk));
}

// Mean Kullback-Leibler divergence of the distributions from the exact ones.
double divergence_of(const std::vector<std::vector<float>>& logprobs,
                     const std::vector<std::vector<float>>& exact) {
  double sum = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    for (std::size_t token = 0; token < exact[i].size(); ++token) {
      const auto log_p = static_cast<double>(exact[i][token]);
      sum += std::exp(log_p) * (log_p - static_cast<double>(logprobs[i][token]));
    }
  }
  return sum / static_cast<double>(exact.size());
}

RankGroup::Options with_model(const std::filesystem::path& model, Activations activations) {
  return {.model = model,
          .activations = activations,
          .limits = {.rows_max = 128, .logit_rows_max = 128, .context_length = 512}};
}

RankGroup::Options smollm2(int ranks, Activations activations, std::optional<CpuPath> path = {}) {
  return {.model = default_model_path(),
          .ranks = ranks,
          .activations = activations,
          .path = path,
          .limits = {.rows_max = 128, .logit_rows_max = 128, .context_length = 512}};
}

// Those of this CPU: what holds on one must hold on the others, which users have.
std::vector<CpuPath> fast_paths() {
  std::vector<CpuPath> paths;
  for (const CpuPath path : {CpuPath::avx2, CpuPath::avx512}) {
    if (supports(detect_cpu_features(), path)) paths.push_back(path);
  }
  return paths;
}

TEST(Engine, ReproducesTheParagraphsNllWithF32Activations) {
  SKIP_IN_SANITIZER_BUILDS("they run tiny models");
  SKIP_WITHOUT(default_model_path());
  RankGroup group(smollm2(1, Activations::f32));
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_NEAR(paragraph_nll(group, 128), 2.0915, 0.001);
}

TEST(Engine, StaysNearTheParagraphsNllOnTheFastPath) {
  SKIP_IN_SANITIZER_BUILDS("they run tiny models");
  SKIP_WITHOUT(default_model_path());
  for (const CpuPath path : fast_paths()) {
    RankGroup group(smollm2(1, Activations::int8, path));
    ASSERT_FALSE(HasFatalFailure());
    const double nll = paragraph_nll(group, 128);
    EXPECT_NEAR(nll, 2.0915, 0.02) << static_cast<int>(path);
    EXPECT_EQ(paragraph_nll(group, 10), nll) << "chunks change it";
  }
}

TEST(Engine, NllIsTheSameOverTwoAndThreeRanks) {
  SKIP_IN_SANITIZER_BUILDS("they run tiny models");
  SKIP_WITHOUT(default_model_path());
  const auto nll_over = [](int ranks, Activations activations, CpuPath path) {
    RankGroup group(smollm2(ranks, activations, path));
    return HasFatalFailure() ? NAN : paragraph_nll(group, 128);
  };
  for (const CpuPath path : fast_paths()) {
    for (const Activations activations : {Activations::f32, Activations::int8}) {
      const double alone = nll_over(1, activations, path);
      for (const int ranks : {2, 3}) {
        EXPECT_NEAR(nll_over(ranks, activations, path), alone, 1e-6) << ranks << " ranks";
      }
    }
  }
}

// What rounding activations to int8 may change. The divergence, about 0.002, is the steadier
// figure; the mean over these 66 predictions moves by 0.009 either way (one standard deviation),
// where 0.02 is the goal: of seven types, six move by less than 0.01, Q4_K by 0.026.
constexpr double kInt8NllMost = 0.03;
constexpr double kInt8DivergenceMost = 0.004;

TEST(Engine, EveryTypeStaysNearTheNllOfItsOwnFileWithF32Activations) {
  SKIP_IN_SANITIZER_BUILDS("they run tiny models");
  SKIP_WITHOUT(default_model_path());
  const auto file = GgufFile::open(default_model_path());
  ASSERT_TRUE(file) << file.error().message;
  // K-quants: the down projections, since rows of 576 columns are no multiple of their blocks.
  for (const DType type : {DType::q4_0, DType::q5_0, DType::q5_1, DType::q8_0, DType::q4_k,
                           DType::q5_k, DType::q6_k}) {
    SCOPED_TRACE(dtype_info(type).name);
    const TempFolder folder;
    const auto bytes = requantise(*file, type);
    ASSERT_TRUE(bytes) << bytes.error().message;
    const std::filesystem::path model = folder.path() / "model.gguf";
    ASSERT_TRUE(write_file(model, *bytes));
    RankGroup exact(with_model(model, Activations::f32));
    RankGroup fast(with_model(model, Activations::int8));
    ASSERT_FALSE(HasFatalFailure());
    const auto expected = paragraph_logprobs(exact, 128), found = paragraph_logprobs(fast, 128);
    const double divergence = divergence_of(found, expected);
    EXPECT_NEAR(nll_of(found), nll_of(expected), kInt8NllMost);
    EXPECT_LT(divergence, kInt8DivergenceMost);
    std::printf("%s: %.4f with f32 activations, %.4f with int8, divergence %.4f\n",
                dtype_info(type).name.data(), nll_of(expected), nll_of(found), divergence);
  }
}

TEST(Engine, AnInt8CacheStaysNearTheParagraphsNll) {
  SKIP_IN_SANITIZER_BUILDS("they run tiny models");
  SKIP_WITHOUT(default_model_path());
  RankGroup::Options options = smollm2(1, Activations::f32);
  options.kv_type = KvType::int8;
  RankGroup group(options);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_NEAR(paragraph_nll(group, 128), 2.0915, 0.02);
}

void expect_top_five(Activations activations, std::optional<CpuPath> path, double tolerance) {
  RankGroup group(smollm2(1, activations, path));
  if (testing::Test::HasFatalFailure()) return;
  StepPlan plan;
  append_rows(plan, {.tokens = kFrance, .begin = 0, .end = kFrance.size(), .logit_rows = 1});
  const auto logits = group.run(plan).at(0);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::partial_sort(order, order.begin() + 5, [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  const std::vector<double> expected = {17.3713, 14.8886, 13.2450, 13.0095, 12.9515};
  const std::vector<std::int32_t> ids = {7042, 260, 4528, 2250, 1315};
  EXPECT_EQ(order[0], ids[0]);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_NEAR(logits[static_cast<std::size_t>(ids[i])], expected[i], tolerance) << ids[i];
  }
  if (tolerance > 0.01) return;  // int8 may swap the last two, which are 0.06 apart
  order.resize(5);
  EXPECT_EQ(order, ids);
}

TEST(Engine, TopFiveOfThePromptMatchTheReference) {
  SKIP_IN_SANITIZER_BUILDS("they run tiny models");
  SKIP_WITHOUT(default_model_path());
  expect_top_five(Activations::f32, {}, 0.005);
  for (const CpuPath path : fast_paths()) expect_top_five(Activations::int8, path, 0.4);
}

}  // namespace
}  // namespace plimsoll
