#include "tools/cli/log_tail.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

namespace plimsoll {
namespace {

constexpr std::size_t kTailBytesMax = 1024 * 1024;

Error file_error(const std::filesystem::path& path) {
  const std::string text = fmt::format("log {}: {}", path.string(), std::strerror(errno));
  return errno == ENOENT ? not_found(text) : unavailable(text);
}

UniqueFd open_file(const std::filesystem::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

// Where the last `lines` lines of the text begin.
std::size_t begin_of_last(const std::string& text, std::size_t lines) {
  std::size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n') --at;
  for (std::size_t found = 0; at > 0; --at) {
    if (text[at - 1] == '\n' && ++found == lines) return at;
  }
  return 0;
}

}  // namespace

Result<LogTail> LogTail::open(const std::filesystem::path& path) {
  UniqueFd file = open_file(path);
  if (!file) return file_error(path);
  UniqueFd watch(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!watch || ::inotify_add_watch(watch.get(), path.parent_path().c_str(),
                                    IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0) {
    return unavailable(
        fmt::format("watch {}: {}", path.parent_path().string(), std::strerror(errno)));
  }
  return LogTail(path, std::move(file), std::move(watch));
}

std::string lines_with(const std::string& text, std::span<const std::string> parts) {
  if (parts.empty()) return text;
  std::string kept;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const auto is_in_line = [&](const std::string& part) {
      return line.find(part) != std::string_view::npos;
    };
    if (std::ranges::any_of(parts, is_in_line)) kept += line;
    begin = end;
  }
  return kept;
}

Result<std::string> LogTail::last(std::size_t lines, std::span<const std::string> parts) {
  struct stat found {};
  if (::fstat(file_.get(), &found) != 0) return file_error(path_);
  const auto size = static_cast<std::size_t>(found.st_size);
  at_ = size - std::min(size, kTailBytesMax);
  const bool is_cut = at_ > 0;
  std::string text = TRY(read_on());
  if (is_cut) text.erase(0, text.find('\n') + 1);
  text = lines_with(text, parts);
  return lines == 0 ? "" : text.substr(begin_of_last(text, lines));
}

Result<std::string> LogTail::read_on() {
  std::string text;
  std::array<char, 16 * 1024> piece{};
  while (text.size() < kTailBytesMax) {
    const ssize_t got = ::pread(file_.get(), piece.data(), piece.size(), static_cast<off_t>(at_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(path_);
    if (got == 0) break;
    text.append(piece.data(), static_cast<std::size_t>(got));
    at_ += static_cast<std::size_t>(got);
  }
  return text;
}

bool LogTail::reopen_if_rotated() {
  struct stat ours {};
  struct stat current {};
  if (::fstat(file_.get(), &ours) != 0 || ::stat(path_.c_str(), &current) != 0) return false;
  if (ours.st_ino == current.st_ino && ours.st_dev == current.st_dev) return false;
  UniqueFd file = open_file(path_);
  if (!file) return false;
  file_ = std::move(file);
  at_ = 0;
  return true;
}

Result<std::string> LogTail::more(Duration timeout) {
  std::string text = TRY(read_on());
  if (text.empty()) {
    pollfd waited{.fd = watch_.get(), .events = POLLIN, .revents = 0};
    const auto count = std::chrono::duration_cast<milliseconds>(timeout).count();
    ::poll(&waited, 1, static_cast<int>(count));
    alignas(inotify_event) std::array<char, 4096> events{};
    while (::read(watch_.get(), events.data(), events.size()) > 0) {
    }
    text = TRY(read_on());
  }
  if (text.empty() && reopen_if_rotated()) text = TRY(read_on());
  return text;
}

}  // namespace plimsoll
