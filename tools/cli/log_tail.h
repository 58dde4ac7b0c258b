// LogTail: the last lines of a log file, and what is written to it from then on.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

class LogTail {
 public:
  // Errors: not_found, unavailable.
  static Result<LogTail> open(const std::filesystem::path& path);

  // The last `lines` lines, of at most the last mebibyte; later reads go on behind them. Only those
  // that contain one of `parts`, where there are any.
  Result<std::string> last(std::size_t lines, std::span<const std::string> parts = {});
  // What has been written since, after at most that long; "" where nothing was. Goes on with the
  // new file where the log was rotated.
  Result<std::string> more(Duration timeout);

 private:
  LogTail(std::filesystem::path path, UniqueFd file, UniqueFd watch)
      : path_(std::move(path)), file_(std::move(file)), watch_(std::move(watch)) {}
  Result<std::string> read_on();
  bool reopen_if_rotated();

  std::filesystem::path path_;
  UniqueFd file_;
  UniqueFd watch_;  // inotify on the folder
  std::size_t at_ = 0;
};

// The lines of a text that contain one of the parts; all where there are none.
std::string lines_with(const std::string& text, std::span<const std::string> parts);

}  // namespace plimsoll
