#include "tools/cli/log_tail.h"

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

void append(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

TEST(LogTail, GivesTheLastLines) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "log";
  append(path, "one\ntwo\nthree\n");
  Result<LogTail> log = LogTail::open(path);
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_EQ(*log->last(2), "two\nthree\n");
  EXPECT_EQ(*log->last(0), "");
  EXPECT_EQ(*log->last(99), "one\ntwo\nthree\n");
}

TEST(LogTail, GivesTheLastLinesOfOneRank) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "log";
  append(path, "a worker 0.1: one\nb worker 0.10: two\nc worker 0.1: three\nd worker 0.1: four");
  Result<LogTail> log = LogTail::open(path);
  ASSERT_TRUE(log) << log.error().message;
  const std::vector<std::string> rank = {" worker 0.1: "};
  EXPECT_EQ(*log->last(2, rank), "c worker 0.1: three\nd worker 0.1: four");
  EXPECT_EQ(lines_with("", rank), "");
}

TEST(LogTail, ALargeFileGivesItsEndInWholeLines) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "log";
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "line " + std::to_string(i) + "\n";
  append(path, text);
  Result<LogTail> log = LogTail::open(path);
  ASSERT_TRUE(log);
  const std::string last = *log->last(1'000'000);
  EXPECT_EQ(last.rfind("line ", 0), 0U);
  EXPECT_LE(last.size(), 1024U * 1024U);
  EXPECT_TRUE(last.ends_with("line 299999\n"));
}

TEST(LogTail, GoesOnWithWhatIsWrittenAndWithTheNextFile) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "log";
  append(path, "one\n");
  Result<LogTail> log = LogTail::open(path);
  ASSERT_TRUE(log);
  EXPECT_EQ(*log->last(10), "one\n");
  EXPECT_EQ(*log->more(milliseconds(1)), "");
  append(path, "two\n");
  EXPECT_EQ(*log->more(seconds(10)), "two\n");
  append(path, "three\n");
  std::filesystem::rename(path, folder.path() / "log.1");
  append(path, "four\n");
  EXPECT_EQ(*log->more(seconds(10)), "three\n");
  EXPECT_EQ(*log->more(seconds(10)), "four\n");
}

TEST(LogTail, AFileThatIsNotThereIsNotFound) {
  const TempFolder folder;
  const Result<LogTail> log = LogTail::open(folder.path() / "log");
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, Code::not_found);
}

}  // namespace
}  // namespace plimsoll
