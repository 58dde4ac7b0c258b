#include "daemon/child_groups.h"

#include <csignal>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(ChildGroups, TheOwnGroupIsFoundUnderV2AndBesideV1) {
  const TempFolder folder;
  const fs::path& root = folder.path();
  EXPECT_TRUE(own_group(root).empty());
  write(root / "proc/self/cgroup",
        "9:name=systemd:/other\n4:memory:/x\n0::/system.slice/plimsoll.service\n");
  write(root / "proc/self/mountinfo",
        "30 1 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "31 1 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n");
  EXPECT_EQ(own_group(root), root / "sys/fs/cgroup/unified/system.slice/plimsoll.service");
  write(root / "proc/self/cgroup", "0::/\n");
  write(root / "proc/self/mountinfo", "31 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  EXPECT_EQ(own_group(root), root / "sys/fs/cgroup/");
}

TEST(ChildGroups, WithoutADelegatedGroupEveryCallDoesNothing) {
  ::unsetenv("NOTIFY_SOCKET");
  ChildGroups groups = ChildGroups::of_service();
  EXPECT_FALSE(groups.exist());
  EXPECT_FALSE(groups.make("worker-0-0-1"));
  groups.kill("worker-0-0-1");
  groups.end("worker-0-0-1");
}

TEST(ChildGroups, AFolderThatIsNoControlGroupIsRefused) {
  const TempFolder folder;
  const Result<ChildGroups> groups = ChildGroups::take(folder.path() / "absent");
  ASSERT_FALSE(groups);
  EXPECT_EQ(groups.error().code, Code::unavailable);
}

// A plain folder in place of the kernel's shows what is written; what the kernel makes of it is
// proved by tests/system/systemd_test.py.
TEST(ChildGroups, AChildsGroupIsMadeKilledAndRemoved) {
  const TempFolder folder;
  const fs::path& top = folder.path();
  write(top / "daemon/cgroup.procs", "");
  Result<ChildGroups> groups = ChildGroups::take(top);
  ASSERT_TRUE(groups) << groups.error().message;
  write(top / "worker-0-1-7/cgroup.procs", "");
  write(top / "worker-0-1-7/cgroup.kill", "");
  EXPECT_TRUE(groups->make("worker-0-1-7"));
  std::string killed;
  std::ifstream(top / "worker-0-1-7/cgroup.kill") >> killed;
  EXPECT_EQ(killed, "1") << "what an earlier life left in it";
  EXPECT_TRUE(fs::exists(top / "worker-0-1-7"));
  groups->end("worker-0-1-7");
  EXPECT_TRUE(fs::exists(top / "worker-0-1-7")) << "it is not empty yet";
  fs::remove(top / "worker-0-1-7/cgroup.procs");
  fs::remove(top / "worker-0-1-7/cgroup.kill");
  groups->remove_empty();
  EXPECT_FALSE(fs::exists(top / "worker-0-1-7"));
}

}  // namespace
}  // namespace plimsoll
