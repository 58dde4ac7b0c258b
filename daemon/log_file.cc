#include "daemon/log_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace plimsoll {

Result<LogFile> LogFile::open(std::filesystem::path path, std::size_t bytes_max) {
  LogFile file(std::move(path), bytes_max);
  TRY(file.reopen());
  return file;
}

Status LogFile::reopen() {
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  struct stat found {};
  if (!fd_ || ::fstat(fd_.get(), &found) != 0) {
    return unavailable(fmt::format("open the log {}: {}", path_.string(), std::strerror(errno)));
  }
  bytes_ = static_cast<std::size_t>(found.st_size);
  return {};
}

// Whether somebody has moved or removed it: a log that nobody finds is none.
bool LogFile::is_lost() const {
  struct stat own {};
  struct stat named {};
  return ::fstat(fd_.get(), &own) != 0 || ::stat(path_.c_str(), &named) != 0 ||
         own.st_ino != named.st_ino || own.st_dev != named.st_dev;
}

void LogFile::line(std::string_view text) {
  if (is_lost() && !reopen()) return;
  if (bytes_ > 0 && bytes_ + text.size() + 1 > bytes_max_) {
    std::error_code ignored;  // where it cannot be moved, the same file goes on
    std::filesystem::rename(path_, path_.string() + ".1", ignored);
    if (!reopen()) return;
  }
  const std::string whole = std::string(text) + "\n";
  const ssize_t written = ::write(fd_.get(), whole.data(), whole.size());
  if (written > 0) bytes_ += static_cast<std::size_t>(written);
}

std::vector<std::string> LineSplitter::take(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kLineBytesMax - rest_.size();
    if (end != std::string_view::npos && end <= room) {
      rest_.append(bytes.substr(0, end));
      lines.push_back(std::exchange(rest_, {}));
      bytes.remove_prefix(end + 1);
    } else if (bytes.size() >= room) {
      rest_.append(bytes.substr(0, room));
      lines.push_back(std::exchange(rest_, {}));
      bytes.remove_prefix(room);
    } else {
      rest_.append(bytes);
      break;
    }
  }
  return lines;
}

std::vector<std::string> LineSplitter::finish() {
  if (rest_.empty()) return {};
  return {std::exchange(rest_, {})};
}

}  // namespace plimsoll
