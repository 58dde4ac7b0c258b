#include "tests/support/fake_root.h"

#include <string>

#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace plimsoll {

FakeRoot::FakeRoot(std::string_view name)
    : path_(std::filesystem::path(::testing::TempDir()) / ("plimsoll_" + std::string(name))) {
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

FakeRoot::~FakeRoot() { std::filesystem::remove_all(path_); }

void FakeRoot::file(std::string_view relative, std::string_view content) const {
  const std::filesystem::path file = path_ / relative;
  std::filesystem::create_directories(file.parent_path());
  ASSERT_TRUE(write_file(file, content)) << file;
}

}  // namespace plimsoll
