#include "shared/options/option_paths.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

TEST(OptionPaths, EveryFileHasOneName) {
  const std::string here = std::filesystem::current_path().string();
  Options options;
  options.model = "./a//./b.gguf";
  options.served_model_name = "b";
  make_paths_absolute(options);
  EXPECT_EQ(options.model, here + "/a/b.gguf");
  EXPECT_EQ(options.served_model_name, "b") << "no path";
  options.runtime_dir = "rt";
  make_paths_absolute(options);
  EXPECT_EQ(options.runtime_dir, "rt") << "of the process itself; sockets want short names";
  EXPECT_EQ(options.draft_model, "") << "none stays none";
  make_paths_absolute(options);
  EXPECT_EQ(options.model, here + "/a/b.gguf");
}

TEST(OptionPaths, AboveALinkIsAboveWhatItLeadsTo) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.path() / "store/models");
  std::ofstream(folder.path() / "store/b.gguf") << "b";
  std::filesystem::create_directory_symlink(folder.path() / "store/models", folder.path() / "link");
  Options options;
  options.model = (folder.path() / "link/../b.gguf").string();
  make_paths_absolute(options);
  EXPECT_TRUE(std::filesystem::exists(options.model)) << options.model;
}

}  // namespace
}  // namespace plimsoll
