#include "shared/generation/library_version.h"

#include <vector>

#include <gtest/gtest.h>

#include "shared/generation/fingerprint.h"
#include "shared/generation/launch_suspects.h"
#include "tests/support/fake_root.h"

namespace plimsoll {
namespace {

TEST(LibraryVersion, IsTheLongestNameOfTheFirstFolderThatHasAny) {
  const FakeRoot root("library_version");
  root.file("usr/lib/x86_64-linux-gnu/libnccl.so", "");
  root.file("usr/lib/x86_64-linux-gnu/libnccl.so.2", "");
  root.file("usr/lib/x86_64-linux-gnu/libnccl.so.2.26.2", "");
  root.file("usr/lib/x86_64-linux-gnu/libncclother.so.9.9.9", "");
  root.file("usr/lib/libnccl.so.2.1.1", "");
  EXPECT_EQ(library_version("libnccl.so", {}, root.path()), "2.26.2");
  EXPECT_EQ(library_version("libcudart.so", {}, root.path()), "");
}

TEST(LibraryVersion, TheLoadersPathGoesBefore) {
  const FakeRoot root("library_version_path");
  root.file("own/libnccl.so.2.27.3", "");
  root.file("usr/lib/libnccl.so.2.26.2", "");
  const std::vector<std::string> variables = {"LD_LIBRARY_PATH=/nowhere:" +
                                              (root.path() / "own").string()};
  EXPECT_EQ(library_version("libnccl.so", variables, root.path()), "2.27.3");
}

// T-27: NCCL 2.26.3 ran out of memory where 2.26.2 did not.
TEST(LibraryVersion, AnotherNcclIsADifferenceOfTheFingerprintAndASuspect) {
  const FakeRoot root("library_version_fingerprint");
  const Machine machine;
  const auto nccl = [&]() -> std::string {
    for (const Setting& setting : read_fingerprint({.machine = machine,
                                  .model = {},
                                  .variables = {},
                                  .build = "",
                                  .root = root.path()})) {
      if (setting.name == "nccl") return setting.value;
    }
    return "";
  };
  EXPECT_EQ(nccl(), "");
  root.file("usr/lib/libnccl.so.2.26.2", "");
  EXPECT_EQ(nccl(), "2.26.2");
  std::filesystem::rename(root.path() / "usr/lib/libnccl.so.2.26.2",
                          root.path() / "usr/lib/libnccl.so.2.26.3");
  EXPECT_EQ(nccl(), "2.26.3");
  EXPECT_GE(usual_suspicion(DifferenceKind::environment, "nccl"), 0.4);
}

}  // namespace
}  // namespace plimsoll
