#include "kernels/cuda/workspace.h"

#include <vector>

#include <gtest/gtest.h>

namespace plimsoll::cuda {
namespace {

TEST(Workspace, PiecesFollowEachOtherAlignedAndWithinWhatIsAskedFor) {
  const BackendLimits limits{.tokens_max = 3,
                             .cols_max = 100,
                             .rows_max = 8,
                             .context_max = 65,
                             .heads_max = 2,
                             .head_dim = 64};
  Workspace space;
  const Bytes bytes = carve_workspace(limits, nullptr, space);
  EXPECT_EQ(space.ids, nullptr);
  std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
  EXPECT_EQ(carve_workspace(limits, memory.data(), space), bytes);
  const std::vector<const void*> pieces = {space.quants,      space.scales,      space.values,
                                           space.ids,         space.rows,        space.tables,
                                           space.partial_out, space.partial_max, space.partial_sum};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto at = static_cast<const std::byte*>(pieces[i]) - memory.data();
    EXPECT_EQ(at % kWorkspaceAlignment, 0) << i;
    EXPECT_LT(at, bytes) << i;
    EXPECT_TRUE(i == 0 || pieces[i] > pieces[i - 1]) << i;
  }
}

}  // namespace
}  // namespace plimsoll::cuda
