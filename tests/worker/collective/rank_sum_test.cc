#include "worker/collective/rank_sum.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::vector<float> random_floats(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<double> random_sums(std::size_t count, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 100);
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

TEST(RankSum, AddsThePartsInOrderAndThenTheRestAndRoundsOnce) {
  for (const std::size_t count : {0U, 1U, 7U, 8U, 9U, 576U, 1023U}) {
    for (const std::uint32_t ranks : {1U, 2U, 3U, 8U}) {
      std::vector<std::vector<double>> data;
      std::vector<const double*> parts;
      for (std::uint32_t r = 0; r < ranks; ++r) data.push_back(random_sums(count, r));
      for (const std::vector<double>& part : data) parts.push_back(part.data());
      std::vector<float> accumulate = random_floats(count, 99);
      std::vector<float> expected = accumulate;
      for (std::size_t i = 0; i < count; ++i) {
        double sum = data[0][i];
        for (std::uint32_t r = 1; r < ranks; ++r) sum += data[r][i];
        expected[i] = static_cast<float>(static_cast<double>(expected[i]) + sum);
      }
      add_in_rank_order(parts, accumulate.data(), static_cast<std::int64_t>(count));
      EXPECT_EQ(accumulate, expected) << count << " floats, " << ranks << " ranks";
    }
  }
}

TEST(RankSum, SumsOfFloatsDoNotDependOnHowTheyWereShared) {
  constexpr std::size_t kCount = 500, kTerms = 24;
  std::vector<std::vector<float>> terms;
  for (std::uint32_t i = 0; i < kTerms; ++i) terms.push_back(random_floats(kCount, i));
  std::vector<float> first;
  for (const std::size_t ranks : {1U, 2U, 3U, 5U, 24U}) {
    std::vector<std::vector<double>> data(ranks, std::vector<double>(kCount));
    std::vector<const double*> parts;
    for (std::size_t term = 0; term < kTerms; ++term) {
      std::vector<double>& part = data[term * ranks / kTerms];
      for (std::size_t i = 0; i < kCount; ++i) part[i] += static_cast<double>(terms[term][i]);
    }
    for (const std::vector<double>& part : data) parts.push_back(part.data());
    std::vector<float> accumulate = random_floats(kCount, 99);
    add_in_rank_order(parts, accumulate.data(), kCount);
    if (first.empty()) first = accumulate;
    EXPECT_EQ(accumulate, first) << ranks << " ranks";
  }
}

TEST(RankSum, CopiesAnyLengthToAnyAlignment) {
  const std::vector<float> from = random_floats(3000, 5);
  for (const std::int64_t offset : {0, 1, 3, 4}) {
    for (const std::int64_t count : {0, 1, 511, 512, 513, 2999}) {
      std::vector<float> slot(3010, -1);
      copy_to_slot(from.data(), count * 4, slot.data() + offset);
      EXPECT_TRUE(std::equal(from.begin(), from.begin() + count, slot.begin() + offset));
      EXPECT_EQ(slot[static_cast<std::size_t>(offset + count)], -1);
    }
  }
}

TEST(RankSum, RunsCoverAStridedMatrixInOrder) {
  std::vector<float> data(7 * 10);
  for (const std::int64_t stride : {6, 10}) {
    const TensorView matrix = {data.data(), DType::f32, 7, 6, stride};
    for (std::int64_t begin = 0; begin < 42; ++begin) {
      for (std::int64_t count = 0; begin + count <= 42; ++count) {
        std::int64_t next = 0;
        for_each_run(matrix, begin, count, [&](float* run, std::int64_t at, std::int64_t length) {
          EXPECT_EQ(at, next);
          const std::int64_t element = begin + at;
          EXPECT_EQ(run, data.data() + element / 6 * stride + element % 6);
          next += length;
        });
        EXPECT_EQ(next, count);
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
