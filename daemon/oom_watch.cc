#include "daemon/oom_watch.h"

#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::size_t kFileBytesMax = 256 * 1024;
// A large process is known to have ended only when the kernel has taken its memory apart.
constexpr Duration kNewsFor = seconds(5);

}  // namespace

OomWatch::OomWatch(std::filesystem::path root)
    : root_(std::move(root)), before_(count()), at_last_look_(before_), looked_(now()) {}

void OomWatch::look(TimePoint now) {
  if (now - looked_ < kNewsFor) return;
  looked_ = now;
  before_ = std::exchange(at_last_look_, count());
}

std::optional<bool> OomWatch::has_killed() const {
  const std::optional<std::int64_t> present = count();
  if (!present || !before_) return std::nullopt;
  return *present > *before_;
}

std::optional<std::int64_t> OomWatch::count() const {
  const Result<std::string> text = read_file(root_ / "proc/vmstat", kFileBytesMax);
  if (!text) return std::nullopt;
  for (const std::string_view line : split(*text, '\n')) {
    constexpr std::string_view kName = "oom_kill ";
    if (!line.starts_with(kName)) continue;
    std::int64_t value = 0;
    const std::string_view number = trim(line.substr(kName.size()));
    const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
    if (read.ec == std::errc()) return value;
  }
  return std::nullopt;
}

}  // namespace plimsoll
