// FakeRoot: a folder that stands before /proc and /sys in tests; removed at destruction.
#pragma once

#include <filesystem>
#include <string_view>

namespace plimsoll {

class FakeRoot {
 public:
  explicit FakeRoot(std::string_view name);
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  ~FakeRoot();

  const std::filesystem::path& path() const { return path_; }
  void file(std::string_view relative, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

}  // namespace plimsoll
