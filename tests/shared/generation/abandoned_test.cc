#include "shared/generation/abandoned.h"

#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include "shared/base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

TEST(Abandoned, OnlyWhoeverHoldsTheLockIsADaemon) {
  const TempFolder folder;
  EXPECT_FALSE(has_daemon(folder.path())) << "there is no file";
  std::ofstream(state_lock_file(folder.path())) << "4711";
  EXPECT_FALSE(has_daemon(folder.path())) << "a daemon that was killed leaves its file";
  UniqueFd lock(::open(state_lock_file(folder.path()).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(lock);
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(has_daemon(folder.path()));
  EXPECT_TRUE(has_daemon(folder.path())) << "asking changes nothing";
  lock = UniqueFd();
  EXPECT_FALSE(has_daemon(folder.path()));
}

TEST(Abandoned, WhatServedHasStoppedAndWhatWasStartedHasFailed) {
  GenerationRecord record{.number = 1, .outcome = Outcome::serving, .known_good = true};
  EXPECT_TRUE(end_abandoned(record));
  EXPECT_EQ(record.outcome, Outcome::stopped);
  EXPECT_EQ(record.message, "its daemon was killed");
  EXPECT_FALSE(end_abandoned(record));

  record = {.number = 2, .outcome = Outcome::launching};
  EXPECT_TRUE(end_abandoned(record));
  EXPECT_EQ(record.outcome, Outcome::failed);
  record = {.number = 3, .outcome = Outcome::launching, .known_good = true};
  EXPECT_TRUE(end_abandoned(record));
  EXPECT_EQ(record.outcome, Outcome::stopped) << "it came back after a change that failed";
  record = {.number = 4, .outcome = Outcome::refused, .message = "why"};
  EXPECT_FALSE(end_abandoned(record));
  EXPECT_EQ(record.message, "why");
}

}  // namespace
}  // namespace plimsoll
