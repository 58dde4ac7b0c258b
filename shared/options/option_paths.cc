#include "shared/options/option_paths.h"

#include <filesystem>
#include <system_error>
#include <variant>

#include "shared/options/option_table.h"

namespace plimsoll {

std::string absolute_path(const std::string& path) {
  std::error_code unknown_folder;
  const std::filesystem::path absolute = std::filesystem::absolute(path, unknown_folder);
  return path.empty() || unknown_folder ? path : absolute.lexically_normal().string();
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
