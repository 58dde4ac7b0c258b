#include "daemon/oom_watch.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

class OomWatchTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_.path() / "proc"); }
  void counted(int kills) const {
    std::ofstream(folder_.path() / "proc/vmstat")
        << "nr_free_pages 12\noom_kill " << kills << "\noom_reaper 3\n";
  }
  TempFolder folder_;
};

TEST_F(OomWatchTest, AKillIsNewsForAFewSeconds) {
  counted(7);
  OomWatch watch(folder_.path());
  EXPECT_EQ(watch.has_killed(), false);
  counted(8);
  EXPECT_EQ(watch.has_killed(), true);
  watch.look(now());
  EXPECT_EQ(watch.has_killed(), true) << "too soon to forget it";
  watch.look(now() + seconds(6));
  EXPECT_EQ(watch.has_killed(), true) << "it may have been between the looks";
  watch.look(now() + seconds(12));
  EXPECT_EQ(watch.has_killed(), false);
}

TEST_F(OomWatchTest, WithoutACountNothingIsSaid) {
  EXPECT_EQ(OomWatch(folder_.path()).has_killed(), std::nullopt);
  std::ofstream(folder_.path() / "proc/vmstat") << "nr_free_pages 12\noom_kill many\n";
  EXPECT_EQ(OomWatch(folder_.path()).has_killed(), std::nullopt);
}

TEST_F(OomWatchTest, ThisKernelCounts) { EXPECT_TRUE(OomWatch().has_killed().has_value()); }

}  // namespace
}  // namespace plimsoll
