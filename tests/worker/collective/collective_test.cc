#include "worker/collective/collective.h"

#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(SingleCollective, AddsAndCopies) {
  const std::unique_ptr<Collective> collective = make_single_collective();
  EXPECT_EQ(collective->size(), 1);
  EXPECT_EQ(collective->rank(), 0);
  std::vector<double> partial = {1, 2, -1, 3, 4, -1};
  std::vector<float> mine = {1, 2, -1, 3, 4, -1};
  std::vector<float> accumulate = {10, 20, 30, 40};
  ASSERT_TRUE(
      collective->all_reduce_add({partial.data(), 2, 2, 3}, f32_view(accumulate.data(), 2, 2))
          .has_value());
  EXPECT_EQ(accumulate, (std::vector<float>{11, 22, 33, 44}));
  const std::int64_t cols[] = {2};
  std::vector<float> all(4);
  ASSERT_TRUE(
      collective->gather({mine.data(), DType::f32, 2, 2, 3}, cols, f32_view(all.data(), 2, 2))
          .has_value());
  EXPECT_EQ(all, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_TRUE(collective->barrier().has_value());
}

TEST(SingleCollective, FailsAfterAnAbort) {
  const std::unique_ptr<Collective> collective = make_single_collective();
  collective->abort("stopped");
  Status status = collective->barrier();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::unavailable);
  EXPECT_NE(status.error().message.find("stopped"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
