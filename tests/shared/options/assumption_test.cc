#include "shared/options/assumption.h"

#include <gtest/gtest.h>

#include "tests/support/plan_cases.h"

namespace plimsoll {
namespace {

TEST(Assumption, ReadsTermsWithUnits) {
  const auto read = parse_assumptions("weights=72.29GiB, free=94GiB");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[0].term, "weights");
  EXPECT_EQ((*read)[0].bytes, static_cast<Bytes>(72.29 * static_cast<double>(kGiB)));
  EXPECT_EQ((*read)[1].bytes, 94 * kGiB);
  EXPECT_TRUE(parse_assumptions("")->empty());
}

TEST(Assumption, OfTwoFiguresForATermTheLastCounts) {
  const auto read = parse_assumptions("free=1GiB,weights=1MiB,free=2GiB");
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[0].bytes, 2 * kGiB);
}

TEST(Assumption, SaysWhatIsWrong) {
  EXPECT_NE(parse_assumptions("weihgts=1GiB").error().message.find("did you mean 'weights'"),
            std::string::npos);
  EXPECT_NE(parse_assumptions("weights").error().message.find("TERM=BYTES"), std::string::npos);
  EXPECT_NE(parse_assumptions("weights=72").error().message.find("needs a unit"),
            std::string::npos);
}

TEST(Assumption, RepeatedFlagsAddUp) {
  const OptionSet set = test_options({"--assume", "weights=72.29GiB", "--assume=free=94GiB"});
  EXPECT_EQ(set.values.assume, "weights=72.29GiB,free=94GiB");
}

}  // namespace
}  // namespace plimsoll
