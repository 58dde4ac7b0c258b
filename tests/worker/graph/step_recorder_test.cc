// Decode steps as recordings, on the host executor, against the same steps without.
#include "worker/graph/step_recorder.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/worker/rank_group.h"
#include "worker/sample/sampler.h"

namespace plimsoll {
namespace {

using Rows = std::vector<std::vector<float>>;

const std::vector<std::int32_t> kTokens = {5, 17, 200, 31, 9, 9, 64, 128, 250, 3, 77, 42};

// To ThreadSanitizer each CUDA thread is a thread, which takes its time; and recordings have no
// threads that steps without them have not.
#if !defined(__SANITIZE_THREAD__)
TinyModel small() {
  TinyModel shape;
  shape.hidden = 64;
  shape.heads = 4;
  shape.kv_heads = 1;
  shape.ffn = 64;
  return shape;
}

RankGroup::Options options_for(const std::filesystem::path& model, std::int64_t recorded) {
  RankGroup::Options options{
      .model = model,
      .limits = {.rows_max = 32, .logit_rows_max = 32, .context_length = 512},
      .kv_blocks = 40};
  options.recorded_rows_max = recorded;
  options.make_backend = [] {
    return make_cuda_backend(cuda::make_host_runtime({.memory = 64 * kMiB, .seed = 2}));
  };
  return options;
}

// Sequences of different lengths get a token each, several times; between two of these steps one
// is no decode step.
Rows decode(RankGroup& group, std::size_t sequences) {
  Rows all;
  const auto run = [&](const StepPlan& plan) {
    for (auto& row : group.run(plan)) all.push_back(std::move(row));
  };
  for (std::size_t s = 0; s < sequences; ++s) {
    StepPlan plan;
    append_rows(plan, {.tokens = kTokens,
                       .begin = 0,
                       .end = 2 + s,
                       .first_block = static_cast<std::int32_t>(4 * s),
                       .logit_rows = 1});
    run(plan);
  }
  for (std::size_t step = 0; step < 3; ++step) {
    StepPlan plan;
    for (std::size_t s = 0; s < sequences; ++s) {
      append_rows(plan, {.tokens = kTokens,
                         .begin = 2 + s + step,
                         .end = 3 + s + step,
                         .first_block = static_cast<std::int32_t>(4 * s),
                         .logit_rows = 1});
    }
    if (step == 1) {
      append_rows(plan, {.tokens = kTokens,
                         .begin = 0,
                         .end = 3,
                         .first_block = static_cast<std::int32_t>(4 * sequences),
                         .logit_rows = 1});
    }
    run(plan);
  }
  return all;
}

TEST(StepRecorder, RecordedStepsHaveTheBitsOfThoseThatAreNot) {
  const TempFolder folder;
  const auto model = write_tiny_model(small(), folder.path());
  ASSERT_TRUE(model) << model.error().message;
  for (const std::size_t sequences : {1, 3, 5}) {
    SCOPED_TRACE(std::to_string(sequences) + " sequences");
    RankGroup plain(options_for(*model, 0));
    RankGroup recorded(options_for(*model, 4));
    EXPECT_EQ(decode(plain, sequences), decode(recorded, sequences));
  }
}

TEST(StepRecorder, TokensThatItDrawsAreThoseOfTheSampler) {
  const TempFolder folder;
  const auto model = write_tiny_model(small(), folder.path());
  ASSERT_TRUE(model) << model.error().message;
  RankGroup group(options_for(*model, 4));
  StepPlan prompts;
  StepPlan step;
  for (std::size_t s = 0; s < 3; ++s) {  // of a batch that is filled up to four
    const auto block = static_cast<std::int32_t>(4 * s);
    append_rows(
        prompts,
        {.tokens = kTokens, .begin = 0, .end = 3 + s, .first_block = block, .logit_rows = 1});
    append_rows(
        step,
        {.tokens = kTokens, .begin = 3 + s, .end = 4 + s, .first_block = block, .logit_rows = 1});
  }
  group.run(prompts);
  const std::vector<std::vector<float>> logits = group.run(step);
  const auto vocab = std::ssize(logits[0]);
  Sampling sampling;
  sampling.top_p = 0.9;
  std::vector<cuda::RowSample> rows;
  for (Tokens position = 0; position < 3; ++position) {
    rows.push_back(row_sample(sampling, position, vocab));
  }
  StepRunner& engine = group.rank(0).engine();
  const auto sampled = engine.run(step, rows);
  ASSERT_TRUE(sampled) << sampled.error().message;
  EXPECT_EQ(sampled->logits.rows, 0);
  ASSERT_EQ(sampled->tokens.size(), 3U);
  Sampler sampler(vocab);
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(sampled->tokens[s], *sampler.sample(logits[s], {.sampling = sampling,
                                                              .output = {},
                                                              .position = static_cast<Tokens>(s)}));
  }
  // A step that was not recorded gives logits.
  const auto of_prompts = engine.run(prompts, rows);
  ASSERT_TRUE(of_prompts) << of_prompts.error().message;
  EXPECT_TRUE(of_prompts->tokens.empty());
  EXPECT_EQ(of_prompts->logits.rows, 3);
}

// Beyond one split of attention, which recordings make blocks of their own.
TEST(StepRecorder, ALongSequenceHasTheSameBitsToo) {
  const TempFolder folder;
  const auto model = write_tiny_model(small(), folder.path());
  ASSERT_TRUE(model) << model.error().message;
  std::vector<std::int32_t> tokens(260);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(i * 37 % 251);
  }
  std::vector<Rows> both;
  for (const std::int64_t largest : {0, 2}) {
    RankGroup group(options_for(*model, largest));
    for (std::size_t begin = 0; begin < 256; begin += 32) {
      StepPlan plan;
      append_rows(plan, {.tokens = tokens, .begin = begin, .end = begin + 32, .logit_rows = 1});
      group.run(plan);
    }
    Rows rows;
    for (std::size_t at = 256; at < 258; ++at) {
      StepPlan plan;
      append_rows(plan, {.tokens = tokens, .begin = at, .end = at + 1, .logit_rows = 1});
      rows.push_back(group.run(plan).front());
    }
    both.push_back(std::move(rows));
  }
  EXPECT_EQ(both[0], both[1]);
}
#endif

TEST(StepRecorder, WithoutRecordingsItServesNoStep) {
  const std::vector<std::int32_t> ids = {1, 2};
  const std::vector<std::int32_t> rows = {0, 1};
  const std::vector<SequenceRows> sequences(2);
  const auto backend = make_cuda_backend(cuda::make_host_runtime({.memory = 0}));
  const auto recorder = StepRecorder::create({.backend = backend.get(), .sizes = {}});
  ASSERT_TRUE(recorder);
  EXPECT_FALSE(recorder->serves({.ids = ids, .sequences = sequences, .logit_rows = rows}));
}

}  // namespace
}  // namespace plimsoll
