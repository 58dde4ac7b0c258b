#include "daemon/process_state.h"

#include <string_view>
#include <system_error>

#include "shared/base/file.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileBytesMax = 4096;

// Its name, between the parentheses, may have any letters.
char letter_of(const fs::path& thread) {
  const Result<std::string> stat = read_file(thread / "stat", kFileBytesMax);
  if (!stat) return '?';
  const std::size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat->size()) return '?';
  return (*stat)[name_end + 2];
}

}  // namespace

ProcessState process_state(std::int64_t pid, const fs::path& root) {
  const fs::path threads = root / "proc" / std::to_string(pid) / "task";
  ProcessState state;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(threads, failed)) {
    const char letter = letter_of(entry.path());
    const bool is_worse = state.letter == '?' || state.letter == 'Z' || letter == 'D';
    if (letter == '?' || !is_worse) continue;
    state.letter = letter;
    const Result<std::string> channel = read_file(entry.path() / "wchan", kFileBytesMax);
    const std::string name(channel ? trim(*channel) : "");
    state.wait_channel = name == "0" ? "" : name;
    if (letter == 'D') break;
  }
  return state;
}

}  // namespace plimsoll
