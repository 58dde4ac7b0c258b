// How threads share `linear` (kernels/cpu/linear.cc).
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/linear_backends.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll {
namespace {

class LinearThreads : public testing::TestWithParam<CpuPath> {};

INSTANTIATE_TEST_SUITE_P(Paths, LinearThreads, testing::ValuesIn(paths_that_run_here()),
                         [](const auto& path) {
                           std::string name = cpu_path_name(path.param);
                           std::erase(name, '-');
                           return name;
                         });

// Threads share the tokens of long prompts and the rows of others: neither is seen in the bits.
TEST_P(LinearThreads, LongPromptsGiveTheSameBitsOnAnyThreadsAndInPieces) {
  constexpr std::int64_t kTokens = 150, kRows = 37, kCols = 96;
  const StoredMatrix gate = random_matrix(DType::q4_1, kRows, kCols, 1);
  const StoredMatrix up = random_matrix(DType::q8_0, kRows, kCols, 2);
  std::vector<float> in = random_floats(kTokens * kCols, 3);
  for (std::size_t i = 5; i < in.size(); i += 211) in[i] = 200;  // some blocks are rounded twice
  std::vector<float> gain = random_floats(kCols, 4);
  for (const Epilogue epilogue : {Epilogue::store, Epilogue::add, Epilogue::silu_mul}) {
    const std::int64_t width = epilogue == Epilogue::silu_mul ? kRows : 2 * kRows;
    const std::vector<float> before = random_floats(kTokens * width, 5);
    const auto run = [&](int threads, std::int64_t piece) {
      TestBackend test = backend_of(GetParam(), Activations::int8, threads);
      const PackedWeights weights(*test.backend, {&gate, &up});
      std::vector<float> out = before;
      for (std::int64_t t = 0; t < kTokens; t += piece) {
        const std::int64_t tokens = std::min(piece, kTokens - t);
        test.backend->linear({.in = f32_view(in.data() + t * kCols, tokens, kCols),
                              .norm = {.weight = gain.data(), .eps = 1e-5F},
                              .weight = &weights.matrix,
                              .epilogue = epilogue,
                              .out = f32_view(out.data() + t * width, tokens, width)});
      }
      return out;
    };
    const std::vector<float> whole = run(1, kTokens);
    for (const int threads : {2, 3}) {  // of tokens each, and of rows
      EXPECT_EQ(run(threads, kTokens), whole) << threads << " threads";
      EXPECT_EQ(run(threads, 13), whole) << threads << " threads, in pieces";
    }
  }
}

}  // namespace
}  // namespace plimsoll
