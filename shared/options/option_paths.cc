#include "shared/options/option_paths.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <variant>

#include "shared/options/option_table.h"

namespace plimsoll {

std::string absolute_path(const std::string& path) {
  std::error_code unknown_folder;
  const std::filesystem::path absolute = std::filesystem::absolute(path, unknown_folder);
  if (path.empty() || unknown_folder) return path;
  // Where a link leads to another folder, what lies above that one is not what lies above the link.
  const bool goes_up = std::ranges::find(absolute, "..") != absolute.end();
  return goes_up ? absolute.string() : absolute.lexically_normal().string();
}

void make_paths_absolute(Options& options) {
  for (const OptionRow& row : option_table()) {
    const auto* field = std::get_if<std::string Options::*>(&row.field);
    if (row.kind == OptionKind::path && row.effect != Effect::fixed && field != nullptr) {
      options.*(*field) = absolute_path(options.*(*field));
    }
  }
}

}  // namespace plimsoll
