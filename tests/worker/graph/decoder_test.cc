#include "worker/graph/decoder.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/worker/graph/naive_llama.h"
#include "tests/worker/rank_group.h"

namespace plimsoll {
namespace {

std::filesystem::path write(const TempFolder& folder, const TinyModel& shape) {
  const auto path = write_tiny_model(shape, folder.path());
  EXPECT_TRUE(path) << path.error().message;
  return path ? *path : std::filesystem::path();
}

std::vector<std::int32_t> random_tokens(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 256);
  return tokens;
}

StepPlan whole(std::span<const std::int32_t> tokens) {
  StepPlan plan;
  append_rows(plan,
              {.tokens = tokens, .begin = 0, .end = tokens.size(), .logit_rows = tokens.size()});
  return plan;
}

double largest_difference(const std::vector<std::vector<float>>& ours,
                          const std::vector<std::vector<double>>& exact) {
  EXPECT_EQ(ours.size(), exact.size());
  double difference = 0;
  for (std::size_t row = 0; row < exact.size(); ++row) {
    EXPECT_EQ(ours[row].size(), exact[row].size());
    for (std::size_t i = 0; i < exact[row].size(); ++i) {
      difference = std::max(difference, std::abs(ours[row][i] - exact[row][i]));
    }
  }
  return difference;
}

struct Case {
  const char* name;
  TinyModel shape;
};

std::vector<Case> cases() {
  return {{"tied_q4_1", {.type = DType::q4_1}},
          {"untied_q8_0", {.type = DType::q8_0, .tied_head = false}},
          {"f16_with_rope_freqs", {.type = DType::f16, .rope_freqs = true}},
          {"one_kv_head", {.type = DType::q5_0, .heads = 6, .kv_heads = 1, .head_dim = 64}}};
}

TEST(Decoder, AgreesWithTheFormulasInDoublePrecision) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const TempFolder folder;
    const auto model = write(folder, c.shape);
    const auto file = GgufFile::open(model);
    ASSERT_TRUE(file) << file.error().message;
    const auto spec = read_model_spec(*file);
    ASSERT_TRUE(spec) << spec.error().message;
    const auto tokens = random_tokens(70, 3);
    const auto exact = NaiveLlama(*file, *spec).run(tokens);
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(ranks);
      RankGroup group({.model = model, .ranks = ranks, .activations = Activations::f32});
      if (testing::Test::HasFatalFailure()) return;
      EXPECT_LT(largest_difference(group.run(whole(tokens)), exact), 2e-3);
    }
  }
}

TEST(Decoder, Int8ActivationsStayNearTheFormulas) {
  const TempFolder folder;
  const auto model = write(folder, {.type = DType::q4_1});
  const auto file = GgufFile::open(model);
  ASSERT_TRUE(file);
  const auto spec = read_model_spec(*file);
  ASSERT_TRUE(spec);
  const auto tokens = random_tokens(70, 3);
  RankGroup group({.model = model});
  EXPECT_LT(largest_difference(group.run(whole(tokens)), NaiveLlama(*file, *spec).run(tokens)),
            0.3);
}

// The same sequence, cut into chunks, with another sequence in the same steps or not.
std::vector<std::vector<float>> in_chunks(RankGroup& group, std::span<const std::int32_t> tokens,
                                          std::size_t chunk, bool beside_another) {
  const auto other = random_tokens(tokens.size(), 99);
  std::vector<std::vector<float>> rows;
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const std::size_t end = std::min(begin + chunk, tokens.size());
    StepPlan plan;
    if (beside_another) {
      append_rows(plan, {.tokens = other, .begin = begin, .end = end, .first_block = 20});
    }
    append_rows(plan, {.tokens = tokens,
                       .begin = begin,
                       .end = end,
                       .first_block = 3,
                       .logit_rows = end - begin});
    for (auto& row : group.run(plan)) rows.push_back(std::move(row));
  }
  return rows;
}

TEST(Decoder, LogitsDependNeitherOnChunksNorOnNeighbours) {
  const TempFolder folder;
  const auto model = write(folder, {.type = DType::q4_1});
  const auto tokens = random_tokens(75, 8);
  for (const int ranks : {1, 2}) {
    for (const int threads : {1, 2}) {
      RankGroup group({.model = model, .ranks = ranks, .threads = threads});
      if (testing::Test::HasFatalFailure()) return;
      const auto alone = group.run(whole(tokens));
      for (const std::size_t chunk : {1U, 2U, 7U, 31U, 32U, 33U, 75U}) {
        const bool beside = chunk <= 60;
        EXPECT_EQ(in_chunks(group, tokens, chunk, false), alone) << "chunks of " << chunk;
        if (!beside) continue;
        EXPECT_EQ(in_chunks(group, tokens, chunk, true), alone)
            << "chunks of " << chunk << " beside another, " << ranks << " ranks";
      }
    }
  }
}

TEST(Decoder, LogitsDoNotDependOnTheNumberOfRanks) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const TempFolder folder;
    const auto model = write(folder, c.shape);
    const auto tokens = random_tokens(75, 9);
    for (const Activations activations : {Activations::int8, Activations::f32}) {
      RankGroup alone({.model = model, .activations = activations});
      if (testing::Test::HasFatalFailure()) return;
      const auto expected = alone.run(whole(tokens));
      for (const int ranks : {2, 3}) {
        RankGroup group({.model = model, .ranks = ranks, .activations = activations});
        if (testing::Test::HasFatalFailure()) return;
        EXPECT_EQ(group.run(whole(tokens)), expected) << ranks << " ranks";
      }
    }
  }
}

TEST(Decoder, AStepWithoutLogitsGivesNone) {
  const TempFolder folder;
  const auto tokens = random_tokens(5, 1);
  for (const int ranks : {1, 2}) {
    RankGroup group({.model = write(folder, {}), .ranks = ranks});
    StepPlan plan;
    append_rows(plan, {.tokens = tokens, .begin = 0, .end = 5});
    EXPECT_TRUE(group.run(plan).empty());
  }
}

}  // namespace
}  // namespace plimsoll
