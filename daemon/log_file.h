// LogFile: what all processes of a deployment have said, in one file of bounded size and the one
// before it. And LineSplitter: whole lines out of a pipe, each of bounded length.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

class LogFile {
 public:
  // Appends to PATH; past the limit it becomes PATH.1 (which goes) and a new one begins.
  static Result<LogFile> open(std::filesystem::path path, std::size_t bytes_max);
  // Without the newline. A full disk loses lines, never the daemon; a file that was moved or
  // removed begins anew.
  void line(std::string_view text);
  const std::filesystem::path& path() const { return path_; }

 private:
  LogFile(std::filesystem::path path, std::size_t bytes_max)
      : path_(std::move(path)), bytes_max_(bytes_max) {}
  Status reopen();
  bool is_lost() const;

  std::filesystem::path path_;
  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  UniqueFd fd_;
};

class LineSplitter {
 public:
  static constexpr std::size_t kLineBytesMax = 8 * 1024;
  // The lines that these bytes complete. A line that is too long comes in pieces.
  std::vector<std::string> take(std::string_view bytes);
  // The unfinished line at the end of the stream, if any.
  std::vector<std::string> finish();

 private:
  std::string rest_;
};

}  // namespace plimsoll
