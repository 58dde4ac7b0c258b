#include "shared/options/option_paths.h"

#include <filesystem>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(OptionPaths, EveryFileHasOneName) {
  const std::string here = std::filesystem::current_path().string();
  Options options;
  options.model = "./a/../b.gguf";
  options.served_model_name = "b";
  make_paths_absolute(options);
  EXPECT_EQ(options.model, here + "/b.gguf");
  EXPECT_EQ(options.served_model_name, "b") << "no path";
  options.runtime_dir = "rt";
  make_paths_absolute(options);
  EXPECT_EQ(options.runtime_dir, "rt") << "of the process itself; sockets want short names";
  EXPECT_EQ(options.draft_model, "") << "none stays none";
  make_paths_absolute(options);
  EXPECT_EQ(options.model, here + "/b.gguf");
}

}  // namespace
}  // namespace plimsoll
