// A whole model on the CUDA backend and the host executor, against the CPU backend.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/worker/rank_group.h"

namespace plimsoll {
namespace {

// Logits spread over a few units. Inputs of matrices are rounded to int8: the CPU rounds blocks
// with an outlier twice, and sums in another order may lie on the other side of a tie. Two
// instruction sets of the CPU differ by 0.07 in these models, CPU and CUDA by 0.11.
constexpr float kTolerance = 0.2F;

const std::vector<std::int32_t> kTokens = {5,  17, 200, 31, 9,   9,  64, 128, 250, 3,  77, 42,
                                           41, 40, 39,  99, 100, 12, 7,  8,   180, 33, 2,  1};

RankGroup::Options options_for(const std::filesystem::path& model, bool on_cuda) {
  RankGroup::Options options{
      .model = model,
      .limits = {.rows_max = 32, .logit_rows_max = 32, .context_length = 128},
      .kv_blocks = 8};
  if (on_cuda) {
    options.make_backend = [] {
      return make_cuda_backend(cuda::make_host_runtime({.memory = 64 * kMiB, .seed = 2}));
    };
  }
  return options;
}

// Logits of every token: two chunks of a prompt, then tokens one by one.
std::vector<std::vector<float>> logits_of(RankGroup& group) {
  std::vector<std::vector<float>> all;
  std::size_t begin = 0;
  for (const std::size_t end : {std::size_t{11}, std::size_t{20}, std::size_t{21}, std::size_t{22},
                                std::size_t{23}, kTokens.size()}) {
    StepPlan plan;
    append_rows(plan, {.tokens = kTokens, .begin = begin, .end = end, .logit_rows = end - begin});
    for (auto& row : group.run(plan)) all.push_back(std::move(row));
    begin = end;
  }
  return all;
}

class CudaHost : public testing::TestWithParam<DType> {};

// To ThreadSanitizer each CUDA thread is a thread: it takes its time.
#if defined(__SANITIZE_THREAD__)
constexpr DType kTypes[] = {DType::f16, DType::q4_1};
#else
constexpr DType kTypes[] = {DType::f32,  DType::f16,  DType::q4_0, DType::q4_1,
                            DType::q8_0, DType::q4_k, DType::q6_k};
#endif

INSTANTIATE_TEST_SUITE_P(Types, CudaHost, testing::ValuesIn(kTypes), [](const auto& tested) {
  return std::string(dtype_info(tested.param).name);
});

TEST_P(CudaHost, AModelHasTheLogitsOfTheCpu) {
  const TempFolder folder;
  TinyModel shape;
  shape.type = GetParam();
  shape.hidden = 256;
  const auto model = write_tiny_model(shape, folder.path());
  ASSERT_TRUE(model) << model.error().message;
  RankGroup cpu(options_for(*model, false));
  RankGroup cuda(options_for(*model, true));
  const auto want = logits_of(cpu);
  const auto got = logits_of(cuda);
  ASSERT_EQ(want.size(), kTokens.size());
  ASSERT_EQ(got.size(), kTokens.size());
  float worst = 0;
  for (std::size_t row = 0; row < want.size(); ++row) {
    ASSERT_EQ(got[row].size(), want[row].size());
    for (std::size_t i = 0; i < want[row].size(); ++i) {
      const float difference = std::fabs(got[row][i] - want[row][i]);
      worst = difference <= worst ? worst : difference;  // NaN is worst
    }
  }
  EXPECT_LT(worst, kTolerance);
  RecordProperty("worst", std::to_string(worst));
}

// ThreadSanitizer's fibres of two ranks' resident blocks take more mappings than a process may
// have; it sees the kernels in all_reduce_test.
#if !defined(__SANITIZE_THREAD__)
TEST(CudaHostRanks, AddUpToTheLogitsOfTheCpuWithTheSameBitsFusedAndRecorded) {
  const TempFolder folder;
  TinyModel shape;
  shape.hidden = 256;
  shape.type = DType::q4_1;
  const auto model = write_tiny_model(shape, folder.path());
  ASSERT_TRUE(model) << model.error().message;
  RankGroup cpu(options_for(*model, false));
  const auto want = logits_of(cpu);
  std::vector<std::vector<float>> first;
  struct Way {
    bool fuses_norms = false;
    std::int64_t recorded_rows_max = 0;
  };
  for (const Way& way : {Way{}, Way{.fuses_norms = true}, Way{true, 2}}) {
    RankGroup::Options options = options_for(*model, false);
    options.ranks = 2;
    options.fuses_norms = way.fuses_norms;
    options.recorded_rows_max = way.recorded_rows_max;
    options.make_runtime = [] {
      return cuda::make_host_runtime(
          {.memory = 64 * kMiB, .seed = 2, .spin_deadline = seconds(120)});
    };
    RankGroup cuda(options);
    EXPECT_EQ(cuda.rank(0).collective().name(), way.fuses_norms ? "fused" : "ipc");
    const auto got = logits_of(cuda);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t row = 0; row < want.size(); ++row) {
      for (std::size_t i = 0; i < want[row].size(); ++i) {
        ASSERT_NEAR(got[row][i], want[row][i], kTolerance) << "row " << row;
      }
    }
    if (first.empty()) first = got;
    EXPECT_EQ(got, first) << "other bits where norms are fused or steps recorded";
  }
}
#endif

TEST(CudaHostStep, ASequenceHasTheSameLogitsWhateverElseIsInItsSteps) {
  const TempFolder folder;
  const auto model = write_tiny_model({}, folder.path());
  ASSERT_TRUE(model) << model.error().message;
  RankGroup alone(options_for(*model, true));
  const auto want = logits_of(alone);
  RankGroup together(options_for(*model, true));
  StepPlan plan;
  append_rows(plan, {.tokens = kTokens, .begin = 0, .end = 5, .first_block = 4, .logit_rows = 1});
  append_rows(plan, {.tokens = kTokens, .begin = 0, .end = 20, .first_block = 0, .logit_rows = 20});
  const auto first = together.run(plan);
  ASSERT_EQ(first.size(), 21U);
  EXPECT_EQ(first[0], want[4]);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(first[i + 1], want[i]) << i;
}

}  // namespace
}  // namespace plimsoll
