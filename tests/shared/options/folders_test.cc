#include "shared/options/folders.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

TEST(Folders, RootUsesTheSystemFolders) {
  const Folders folders = folders_of({.uid = 0, .home = "/root", .xdg_runtime_dir = "/run/user/0"});
  EXPECT_EQ(folders.config_file, "/etc/plimsoll/plimsoll.conf");
  EXPECT_EQ(folders.runtime, "/run/plimsoll");
  EXPECT_EQ(folders.state, "/var/lib/plimsoll");
}

TEST(Folders, OthersUseXdgFolders) {
  const Folders folders = folders_of({.uid = 1000,
                                      .home = "/home/ada",
                                      .xdg_config_home = "/c",
                                      .xdg_runtime_dir = "/run/user/1000",
                                      .xdg_state_home = "/s"});
  EXPECT_EQ(folders.config_file, "/c/plimsoll/plimsoll.conf");
  EXPECT_EQ(folders.runtime, "/run/user/1000/plimsoll");
  EXPECT_EQ(folders.state, "/s/plimsoll");
}

TEST(Folders, FallBackWhereXdgIsUnsetOrRelative) {
  const Folders folders = folders_of({.uid = 7, .home = "/home/ada", .xdg_runtime_dir = "run"});
  EXPECT_EQ(folders.config_file, "/home/ada/.config/plimsoll/plimsoll.conf");
  EXPECT_EQ(folders.runtime, "/tmp/plimsoll-7");
  EXPECT_EQ(folders.state, "/home/ada/.local/state/plimsoll");
  EXPECT_EQ(folders_of({.uid = 7}).state, "/tmp/plimsoll-7/.local/state/plimsoll");
}

TEST(Folders, OptionsWin) {
  Options options;
  options.runtime_dir = "/r";
  options.state_dir = "/s";
  EXPECT_EQ(runtime_folder(options), "/r");
  EXPECT_EQ(state_folder(options), "/s");
  EXPECT_EQ(runtime_folder(Options{}), default_folders().runtime);
}

TEST(Folders, PrivateFoldersAreMadeOnceWithMode0700) {
  const fs::path base = fs::path(::testing::TempDir()) / "plimsoll_folders_test";
  fs::remove_all(base);
  const fs::path folder = base / "a" / "b";
  ASSERT_TRUE(make_private_folder(folder));
  ASSERT_TRUE(make_private_folder(folder));
  struct stat found = {};
  ASSERT_EQ(::stat(folder.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
  EXPECT_FALSE(make_private_folder("/dev/null"));
  const Status below = make_private_folder("/dev/null/a/state");
  ASSERT_FALSE(below);
  EXPECT_NE(below.error().message.find("Not a directory; give another with --runtime-dir"),
            std::string::npos)
      << below.error().message;
  fs::remove_all(base);
}

}  // namespace
}  // namespace plimsoll
