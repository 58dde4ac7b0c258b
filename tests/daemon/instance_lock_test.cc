#include "daemon/instance_lock.h"

#include <fstream>
#include <future>
#include <optional>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "shared/generation/abandoned.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

void leave_socket(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  const UniqueFd left(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(::bind(left.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

TEST(InstanceLock, ASecondOneNamesTheFirst) {
  const TempFolder folder;
  const std::filesystem::path runtime = folder.path() / "run";
  const Result<InstanceLock> first = InstanceLock::take(runtime);
  ASSERT_TRUE(first) << first.error().message;
  const Result<InstanceLock> second = InstanceLock::take(runtime);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::unavailable);
  EXPECT_NE(second.error().message.find("pid " + std::to_string(::getpid())), std::string::npos);
}

TEST(InstanceLock, TheFolderIsPrivateAndTheFileGoes) {
  const TempFolder folder;
  const std::filesystem::path runtime = folder.path() / "run";
  {
    const Result<InstanceLock> lock = InstanceLock::take(runtime);
    ASSERT_TRUE(lock);
    struct stat found {};
    ASSERT_EQ(::stat(runtime.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, 0700U);
    EXPECT_TRUE(std::filesystem::exists(runtime / "lock"));
  }
  EXPECT_FALSE(std::filesystem::exists(runtime / "lock"));
  EXPECT_TRUE(InstanceLock::take(runtime));
}

TEST(InstanceLock, OneDaemonAlsoAFolderOfRecords) {
  const TempFolder folder;
  const Result<InstanceLock> runtime = InstanceLock::take(folder.path());
  ASSERT_TRUE(runtime) << runtime.error().message;
  std::optional<InstanceLock> state;
  {
    Result<InstanceLock> taken = InstanceLock::take_state(folder.path());
    ASSERT_TRUE(taken) << "one folder may be both: " << taken.error().message;
    state.emplace(std::move(*taken));
  }
  const Result<InstanceLock> second = InstanceLock::take_state(folder.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::unavailable);
  EXPECT_NE(second.error().message.find("pid " + std::to_string(::getpid())), std::string::npos);
  EXPECT_NE(second.error().message.find("--state-dir"), std::string::npos);
  EXPECT_NE(second.error().message.find("stop --all --runtime-dir ITS-OWN"), std::string::npos)
      << "in ours nobody is: " << second.error().message;
}

TEST(InstanceLock, WhoOnlyAsksForADaemonHoldsUpNone) {
  const TempFolder folder;
  const std::filesystem::path file = state_lock_file(folder.path());
  UniqueFd asker(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(asker.get(), LOCK_SH), 0);
  std::future<bool> taken = std::async(
      std::launch::async, [&] { return InstanceLock::take_state(folder.path()).has_value(); });
  // Long for one who asks, and short of what is waited for them.
  EXPECT_EQ(taken.wait_for(milliseconds(20)), std::future_status::timeout);
  asker.reset();
  EXPECT_TRUE(taken.get());
}

TEST(InstanceLock, LeftSocketsGoAndOtherFilesStay) {
  const TempFolder folder;
  leave_socket(folder.path() / "control");
  leave_socket(folder.path() / "replica-0-3");
  leave_socket(folder.path() / "somebody-elses");
  std::ofstream(folder.path() / "replica-notes") << "precious";
  std::ofstream(folder.path() / "lock") << "12345";  // of a daemon that was killed
  const Result<InstanceLock> lock = InstanceLock::take(folder.path());
  ASSERT_TRUE(lock) << lock.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "control"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "replica-0-3"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "somebody-elses"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "replica-notes"));
}

}  // namespace
}  // namespace plimsoll
