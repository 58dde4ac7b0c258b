// A whole model through the driver's functions, over the library of tests/drivers: device memory is
// nobody's but the device's there, so what takes a pointer of it for its own ends in a fault.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#if !defined(__SANITIZE_THREAD__)
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"
#include "tests/kernels/cuda/driver_library.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/worker/rank_group.h"

namespace plimsoll {
namespace {

const std::vector<std::int32_t> kTokens = {5, 17, 200, 31, 9, 9, 64, 128, 250, 3, 77, 42};

std::unique_ptr<Backend> on_driver() {
  auto runtime = cuda::make_driver_runtime(cuda::TestDriver::options());
  EXPECT_TRUE(runtime) << runtime.error().message;
  return make_cuda_backend(std::move(*runtime));
}

std::unique_ptr<Backend> on_host() {
  return make_cuda_backend(cuda::make_host_runtime({.memory = 64 * kMiB, .seed = 2}));
}

RankGroup::Options options_for(const std::filesystem::path& model,
                               std::unique_ptr<Backend> (*make_backend)()) {
  RankGroup::Options options{
      .model = model,
      .limits = {.rows_max = 32, .logit_rows_max = 32, .context_length = 128},
      .kv_blocks = 8};
  options.recorded_rows_max = 2;
  options.make_backend = make_backend;
  return options;
}

std::vector<std::vector<float>> logits_of(RankGroup& group) {
  std::vector<std::vector<float>> all;
  std::size_t begin = 0;
  for (const std::size_t end : {std::size_t{9}, std::size_t{10}, std::size_t{11}, kTokens.size()}) {
    StepPlan plan;
    append_rows(plan, {.tokens = kTokens, .begin = begin, .end = end, .logit_rows = end - begin});
    for (auto& row : group.run(plan)) all.push_back(std::move(row));
    begin = end;
  }
  return all;
}

TEST(DriverRank, HasTheBitsOfTheHostExecutorAndLeavesNothing) {
  const cuda::TestDriver driver;
  const TempFolder folder;
  for (const bool has_freqs : {false, true}) {
    TinyModel shape;
    shape.rope_freqs = has_freqs;
    shape.type = has_freqs ? DType::q8_0 : DType::q4_1;
    const auto model = write_tiny_model(shape, folder.path());
    ASSERT_TRUE(model) << model.error().message;
    RankGroup::Options unrecorded = options_for(*model, on_host);
    unrecorded.recorded_rows_max = 0;
    RankGroup host(unrecorded);
    RankGroup gpu(options_for(*model, on_driver));
    const auto want = logits_of(host);
    ASSERT_EQ(want.size(), kTokens.size());
    EXPECT_EQ(logits_of(gpu), want);
    EXPECT_EQ(gpu.rank(0).description(), "cuda on Host Executor GPU (SM 9.0), int8 activations");
  }
  EXPECT_EQ(driver.held(), 0U);
}

}  // namespace
}  // namespace plimsoll
#endif
