// FakeRoot: a folder that stands before /proc and /sys in tests; removed at destruction.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace plimsoll {

class FakeRoot {
 public:
  explicit FakeRoot(std::string_view name)
      : path_(std::filesystem::path(::testing::TempDir()) / ("plimsoll_" + std::string(name))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  ~FakeRoot() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  void file(std::string_view relative, std::string_view content) const {
    const std::filesystem::path file = path_ / relative;
    std::filesystem::create_directories(file.parent_path());
    ASSERT_TRUE(write_file(file, content)) << file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace plimsoll
