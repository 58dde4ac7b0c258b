#include "shared/memory/foreign_log/log_file.h"

#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shared/base/unique_fd.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

TEST(LogFile, AFileThatIsNotThereOrNoLogIsNamed) {
  const auto absent = read_foreign_log("/nowhere/x.log");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::not_found);
  EXPECT_NE(absent.error().message.find("/nowhere/x.log"), std::string::npos);
  const auto noise = read_foreign_log(golden_path("logs/noise.log"));
  ASSERT_FALSE(noise);
  EXPECT_EQ(noise.error().code, Code::invalid);
  EXPECT_NE(noise.error().message.find("noise.log"), std::string::npos);
}

TEST(LogFile, AFolderIsNotTriedAgainLater) {
  const auto folder = read_foreign_log("/");
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, Code::invalid);
  EXPECT_EQ(folder.error().message,
            "read log /: it is a folder; name a file in it, or - for standard input");
}

TEST(LogFile, AHyphenIsStandardInput) {
  const UniqueFd kept(::dup(STDIN_FILENO));
  const UniqueFd file(::open(golden_path("logs/sglang-failing.log").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(kept && file);
  ASSERT_EQ(::dup2(file.get(), STDIN_FILENO), STDIN_FILENO);
  const auto log = read_foreign_log(kStandardInput);
  ASSERT_EQ(::dup2(kept.get(), STDIN_FILENO), STDIN_FILENO);
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_EQ(log->end, ForeignEnd::no_kv);
  EXPECT_EQ(log_label(kStandardInput), "standard input");
  EXPECT_EQ(log_label("/var/log/a.log"), "a.log");
}

// 24 MB of serving and one line of 8 MB: what is kept does not grow with it.
TEST(LogFile, ALongLogTakesBoundedMemoryAndLittleTime) {
  TempFolder folder;
  const std::filesystem::path path = folder.path() / "long.log";
  const std::string working = read_test_file(golden_path("logs/sglang-working.log"));
  {
    std::ofstream out(path);
    out << working;
    std::string block;
    for (int i = 0; i < 1000; ++i) {
      block +=
          "[2026-02-26 10:00:00 TP0] Decode batch. #running-req: 8, #token: 4711, token usage: "
          "0.03, "
          "gen throughput (token/s): 388.01, #queue-req: 0\n"
          "[2026-02-26 10:00:00] INFO:     10.0.0.1:5555 - \"POST /v1/chat/completions HTTP/1.1\" "
          "200 "
          "OK\nsome words of a plugin that nobody knows, which are to be looked at all the same\n";
    }
    for (int i = 0; i < 72; ++i) out << block;
    out << std::string(std::size_t{8} << 20, 'x') << "\n";
    out << "[2026-02-26 11:00:00 TP3] Scheduler hit an exception: Traceback (most recent call "
           "last):\n"
           "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB.";
  }
  struct rusage before {};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &before), 0);
  const auto log = read_foreign_log(path);
  struct rusage after {};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &after), 0);
  ASSERT_TRUE(log);
  EXPECT_EQ(log->end, ForeignEnd::no_step);  // the last line has no end
  EXPECT_GT(log->lines, 200'000);
  if (!kIsSanitizerBuild) {
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 * 1024) << "KiB";
    // Of the processor, since a machine may be loaded; half a second is usual.
    EXPECT_LT(after.ru_utime.tv_sec - before.ru_utime.tv_sec, 10);
  }
}

TEST(LogFile, Utf16IsNamed) {
  const TempFolder folder;
  const auto path = folder.path() / "powershell.log";
  std::ofstream(path) << std::string("\xff\xfe[\0S\0", 6);
  const auto log = read_foreign_log(path);
  ASSERT_FALSE(log);
  EXPECT_NE(log.error().message.find("it is UTF-16"), std::string::npos) << log.error().message;
}

}  // namespace
}  // namespace plimsoll
