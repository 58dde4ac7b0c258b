#include "shared/base/log.h"

#include <string>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Log, ALineNamesWhoSpeaksAndItsLevel) {
  testing::internal::CaptureStderr();
  log_start("worker 0.1", LogLevel::info);
  LOG_WARNING("{} of {}", 3, 4);
  LOG_DEBUG("not shown");
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_NE(out.find(" W worker 0.1: 3 of 4\n"), std::string::npos) << out;
  EXPECT_EQ(out.find("not shown"), std::string::npos);
}

TEST(Log, TheLevelChangesAtRunTime) {
  log_start("test", LogLevel::warning);
  EXPECT_FALSE(log_enabled(LogLevel::info));
  log_level(LogLevel::debug);
  EXPECT_TRUE(log_enabled(LogLevel::debug));
}

}  // namespace
}  // namespace plimsoll
