#include "shared/memory/foreign_log/log_file.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "shared/base/unique_fd.h"

namespace plimsoll {
namespace {

constexpr std::size_t kPieceBytes = 256 * 1024;

// By its byte order mark.
bool is_utf16(std::string_view text) {
  return text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
}

Error read_error(const std::filesystem::path& path) {
  const int error = errno;
  if (error == EISDIR) {
    return invalid(
        fmt::format("read log {}: it is a folder; name a file in it, or - for standard "
                    "input",
                    path.native()));
  }
  const Code code = error == ENOENT || error == ENOTDIR ? Code::not_found : Code::unavailable;
  return {code, fmt::format("read log {}: {}", path.native(), std::strerror(error))};
}

// Lines of pieces; of a line longer than kLogLineMax the rest is dropped.
class Lines {
 public:
  explicit Lines(ForeignLogReader& reader) : reader_(reader) {}

  void piece(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      const std::string_view part = text.substr(0, end);
      if (end == std::string_view::npos) {
        keep(part);
        return;
      }
      if (rest_.empty()) {
        reader_.line(part);
      } else {
        keep(part);
        reader_.line(rest_);
        rest_.clear();
      }
      text.remove_prefix(end + 1);
    }
  }
  void finish() {
    if (!rest_.empty()) reader_.line(rest_);
  }

 private:
  void keep(std::string_view part) {
    rest_ += part.substr(0, kLogLineMax - std::min(kLogLineMax, rest_.size()));
  }

  ForeignLogReader& reader_;
  std::string rest_;
};

}  // namespace

std::string log_label(const std::filesystem::path& path) {
  return path == kStandardInput ? "standard input" : path.filename().string();
}

Result<ForeignLog> read_foreign_log(const std::filesystem::path& path) {
  const UniqueFd fd(path == kStandardInput ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                           : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return read_error(path);
  ForeignLogReader reader;
  Lines lines(reader);
  std::vector<char> piece(kPieceBytes);
  bool is_first = true;
  while (true) {
    const ssize_t count = ::read(fd.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return read_error(path);
    if (count == 0) break;
    if (is_first && is_utf16({piece.data(), static_cast<std::size_t>(count)})) {
      return invalid(
          fmt::format("read log {}: it is UTF-16 (as PowerShell's > writes); expected "
                      "UTF-8: iconv -f UTF-16 -t UTF-8 converts it",
                      path.native()));
    }
    is_first = false;
    lines.piece({piece.data(), static_cast<std::size_t>(count)});
  }
  lines.finish();
  return TRY_CONTEXT(fmt::format("read log {}: ", path.native()), reader.finish());
}

}  // namespace plimsoll
