#include "shared/generation/launch_suspects.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(LaunchSuspects, WhatSizesMemoryComesBeforeWhatTakesSomeAndWhatTakesNone) {
  EXPECT_GT(option_suspect("mem-fraction-static").weight,
            option_suspect("cuda-graph-max-bs").weight);
  EXPECT_GT(option_suspect("cuda-graph-max-bs").weight,
            option_suspect("disable-custom-all-reduce").weight);
  EXPECT_GT(option_suspect("disable-custom-all-reduce").weight, option_suspect("port").weight);
  EXPECT_GT(option_suspect("nobody-knows-it").weight, option_suspect("log-level").weight);
  EXPECT_TRUE(option_suspect("cuda-graph-bs").is_graphs);
  EXPECT_FALSE(option_suspect("tp").is_graphs);
}

TEST(LaunchSuspects, NamesMatchByBeginningOrEnd) {
  EXPECT_EQ(option_suspect("speculative-num-steps").weight,
            option_suspect("speculative-algorithm").weight);
  EXPECT_EQ(option_suspect("prefill-attention-backend").weight,
            option_suspect("attention-backend").weight);
  EXPECT_EQ(option_suspect("nccl-port").weight, option_suspect("port").weight);
  EXPECT_EQ(surrounding_suspect("NCCL_BUFFSIZE").weight, 45);
  EXPECT_EQ(surrounding_suspect("HOME").weight, 20);
}

}  // namespace
}  // namespace plimsoll
