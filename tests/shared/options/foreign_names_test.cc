#include "shared/options/foreign_names.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(ForeignNames, NamesOfOtherServersBecomeOurs) {
  EXPECT_EQ(canonical_option("tp_size"), "tp");
  EXPECT_EQ(canonical_option("tensor_parallel_size"), "tp");
  EXPECT_EQ(canonical_option("model_path"), "model");
  EXPECT_EQ(canonical_option("max_model_len"), "context-length");
  EXPECT_EQ(canonical_option("max_seq_len"), "context-length");
  EXPECT_EQ(canonical_option("--pp-size"), "pp");
  EXPECT_EQ(canonical_option("mem_fraction_static"), "mem-fraction-static");
  EXPECT_EQ(canonical_option("nobody_knows_it"), "nobody-knows-it");
}

}  // namespace
}  // namespace plimsoll
