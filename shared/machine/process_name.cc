#include "shared/machine/process_name.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <pwd.h>
#include <unistd.h>

#include "shared/base/file.h"
#include "shared/base/shown_text.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::size_t kFileBytesMax = 256 * 1024;
constexpr std::size_t kCommandMax = 120;

std::string user_name(std::string_view status) {
  for (const std::string_view line : split(status, '\n')) {
    if (!line.starts_with("Uid:")) continue;
    const std::string_view text = trim(line.substr(4));
    uid_t uid = 0;
    const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), uid);
    if (failure != std::errc()) return {};
    std::array<char, 4096> buffer{};
    passwd entry{};
    passwd* found = nullptr;
    if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
      return entry.pw_name;
    }
    return std::to_string(uid);
  }
  return {};
}

}  // namespace

ProcessName process_name(std::int64_t pid, const std::filesystem::path& root) {
  const std::filesystem::path folder = root / "proc" / std::to_string(pid);
  ProcessName name;
  if (const auto status = read_file(folder / "status", kFileBytesMax)) {
    name.user = user_name(*status);
  }
  auto command = read_file(folder / "cmdline", kFileBytesMax);  // words end with a zero byte
  if (!command || command->empty()) command = read_file(folder / "comm", kFileBytesMax);
  if (!command) return name;
  std::replace_if(
      command->begin(), command->end(), [](char c) { return c == '\0' || c == '\n'; }, ' ');
  name.command = shown(trim(*command));
  if (name.command.size() > kCommandMax) {
    name.command = to_valid_utf8(name.command.substr(0, kCommandMax)) + "...";
  }
  return name;
}

}  // namespace plimsoll
