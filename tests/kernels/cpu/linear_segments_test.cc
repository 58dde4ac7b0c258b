// How `linear` adds up the segments of columns that ranks share (kernels/backend.h).
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/linear_backends.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll {
namespace {

class LinearSegments : public testing::TestWithParam<LinearCase> {
 protected:
  CpuPath path() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Paths, LinearSegments,
                         testing::Combine(testing::ValuesIn(paths_that_run_here()),
                                          testing::ValuesIn(kAllDTypes)),
                         linear_case_name);

// The columns from `begin` to `end` of a matrix, as one rank of several holds them.
class SharedColumns {
 public:
  SharedColumns(Backend& backend, const StoredMatrix& stored, std::int64_t begin, std::int64_t end,
                std::int64_t segment)
      : memory_(packed_bytes(stored.dtype, stored.rows, end - begin)) {
    StoredSlice slice = stored.slice();
    slice.col_begin = begin;
    slice.col_end = end;
    const auto part = backend.pack(slice, memory_.span());
    CHECK(part.has_value());
    matrix = {.parts = {*part}, .rows = stored.rows, .cols = end - begin, .segment_cols = segment};
  }
  PackedMatrix matrix;

 private:
  AlignedBytes memory_;
};

TEST_P(LinearSegments, GivesTheSameBitsHoweverManyRanksShareTheColumns) {
  const std::int64_t segment = std::max<std::int64_t>(dtype_info(dtype()).block_length, 64);
  const std::int64_t segments = 1536 / segment, cols = segments * segment;
  constexpr std::int64_t kTokens = 11, kRows = 37;
  const StoredMatrix stored = random_matrix(dtype(), kRows, cols, 17);
  std::vector<float> in = random_floats(kTokens * cols, 18);
  const std::vector<float> before = random_floats(kTokens * kRows, 19);
  for (const Activations activations : {Activations::int8, Activations::f32}) {
    TestBackend test = backend_of(path(), activations, 2);
    std::vector<float> whole = before;
    const SharedColumns all(*test.backend, stored, 0, cols, segment);
    LinearCall call{.in = f32_view(in.data(), kTokens, cols),
                    .norm = {},
                    .weight = &all.matrix,
                    .epilogue = Epilogue::add,
                    .out = f32_view(whole.data(), kTokens, kRows)};
    test.backend->linear(call);
    for (const std::int64_t ranks : {2, 3, 5}) {
      std::vector<double> sum(before.size()), part(before.size());
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t begin = segments * rank / ranks * segment;
        const std::int64_t end = segments * (rank + 1) / ranks * segment;
        const SharedColumns own(*test.backend, stored, begin, end, segment);
        // One token after the other: neither is what a row gives a matter of its neighbours.
        for (std::int64_t t = 0; t < kTokens; ++t) {
          call.in = f32_view(in.data() + t * cols + begin, 1, end - begin);
          call.weight = &own.matrix;
          call.epilogue = Epilogue::partial;
          call.out = {};
          call.sums = sums_view(part.data() + t * kRows, 1, kRows);
          test.backend->linear(call);
        }
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      for (std::size_t i = 0; i < sum.size(); ++i) {
        ASSERT_EQ(static_cast<float>(static_cast<double>(before[i]) + sum[i]), whole[i])
            << ranks << " ranks, element " << i;
      }
    }
  }
}

TEST_P(LinearSegments, PartialSumsAreTheSegmentsOwnInOrder) {
  const std::int64_t segment = std::max<std::int64_t>(dtype_info(dtype()).block_length, 64);
  const std::int64_t segments = 1536 / segment, cols = segments * segment;
  constexpr std::int64_t kRows = 16;
  const StoredMatrix stored = random_matrix(dtype(), kRows, cols, 27);
  std::vector<float> in = random_floats(cols, 28);
  TestBackend test = backend_of(path(), Activations::int8);
  std::vector<double> sums(kRows), expected(kRows);
  const SharedColumns all(*test.backend, stored, 0, cols, segment);
  test.backend->linear({.in = f32_view(in.data(), 1, cols),
                        .norm = {},
                        .weight = &all.matrix,
                        .epilogue = Epilogue::partial,
                        .out = {},
                        .sums = sums_view(sums.data(), 1, kRows)});
  for (std::int64_t begin = 0; begin < cols; begin += segment) {
    const SharedColumns own(*test.backend, stored, begin, begin + segment, 0);
    std::vector<float> out(kRows);
    test.backend->linear({.in = f32_view(in.data() + begin, 1, segment),
                          .norm = {},
                          .weight = &own.matrix,
                          .out = f32_view(out.data(), 1, kRows)});
    for (std::size_t r = 0; r < out.size(); ++r) expected[r] += static_cast<double>(out[r]);
  }
  EXPECT_EQ(sums, expected);
}

}  // namespace
}  // namespace plimsoll
