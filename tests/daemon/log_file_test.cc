#include "daemon/log_file.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

TEST(LogFile, AppendsToWhatIsThere) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "log";
  LogFile::open(path, 1000)->line("one");
  LogFile::open(path, 1000)->line("two");
  EXPECT_EQ(*read_file(path, 1000), "one\ntwo\n");
}

TEST(LogFile, TwoFilesOfBoundedSizeHoldTheEnd) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "log";
  Result<LogFile> log = LogFile::open(path, 100);
  ASSERT_TRUE(log);
  for (int i = 0; i < 1000; ++i) log->line("line " + std::to_string(i));
  const std::string now = *read_file(path, 1000);
  const std::string before = *read_file(path.string() + ".1", 1000);
  EXPECT_LE(now.size(), 100U);
  EXPECT_LE(before.size(), 100U);
  EXPECT_NE(now.find("line 999\n"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".2"));
}

TEST(LogFile, OneThatWasMovedOrRemovedBeginsAnew) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "log";
  Result<LogFile> log = LogFile::open(path, 1000);
  ASSERT_TRUE(log);
  log->line("one");
  std::filesystem::rename(path, path.string() + ".moved");
  log->line("two");
  EXPECT_EQ(*read_file(path, 1000), "two\n");
  std::filesystem::remove(path);
  log->line("three");
  EXPECT_EQ(*read_file(path, 1000), "three\n");
  EXPECT_EQ(*read_file(path.string() + ".moved", 1000), "one\n");
}

TEST(LogFile, AFolderThatIsMissingIsAnErrorWithItsName) {
  const Result<LogFile> log = LogFile::open("/nowhere/at/all.log", 100);
  ASSERT_FALSE(log);
  EXPECT_NE(log.error().message.find("/nowhere/at/all.log"), std::string::npos);
}

TEST(LineSplitter, LinesComeWholeHoweverTheyArrive) {
  LineSplitter lines;
  EXPECT_TRUE(lines.take("one").empty());
  EXPECT_EQ(lines.take(" line\n\ntwo\nthr"), (std::vector<std::string>{"one line", "", "two"}));
  EXPECT_EQ(lines.finish(), std::vector<std::string>{"thr"});
  EXPECT_TRUE(lines.finish().empty());
}

TEST(LineSplitter, ALineWithoutEndComesInBoundedPieces) {
  LineSplitter lines;
  std::size_t bytes = 0;
  for (int i = 0; i < 100; ++i) {
    for (const std::string& piece : lines.take(std::string(1000, 'x'))) {
      EXPECT_LE(piece.size(), LineSplitter::kLineBytesMax);
      bytes += piece.size();
    }
  }
  for (const std::string& piece : lines.finish()) bytes += piece.size();
  EXPECT_EQ(bytes, 100'000U);
}

}  // namespace
}  // namespace plimsoll
