// TempFolder: an empty folder of a test's own, removed with it.
#pragma once

#include <filesystem>

namespace plimsoll {

class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace plimsoll
