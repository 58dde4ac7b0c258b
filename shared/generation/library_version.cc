#include "shared/generation/library_version.h"

#include <array>
#include <system_error>
#include <vector>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 8> kFolders = {"usr/local/cuda/lib64",
                                                 "usr/local/cuda/targets/x86_64-linux/lib",
                                                 "usr/local/lib",
                                                 "usr/lib/x86_64-linux-gnu",
                                                 "usr/lib/aarch64-linux-gnu",
                                                 "usr/lib64",
                                                 "usr/lib",
                                                 "lib64"};
constexpr std::size_t kEntriesMax = 100'000;  // of a folder

std::vector<fs::path> folders_of(std::span<const std::string> variables, const fs::path& root) {
  constexpr std::string_view kPath = "LD_LIBRARY_PATH=";
  std::vector<fs::path> folders;
  for (const std::string& variable : variables) {
    if (!variable.starts_with(kPath)) continue;
    for (const std::string_view one : split(std::string_view(variable).substr(kPath.size()), ':')) {
      if (!one.empty()) folders.emplace_back(one);
    }
  }
  for (const char* folder : kFolders) folders.push_back(root / folder);
  return folders;
}

// The longest: libnccl.so and libnccl.so.2 lead to libnccl.so.2.27.3.
std::string longest_version(const fs::path& folder, std::string_view library) {
  std::string longest;
  std::error_code ignored;  // a folder that is absent has nothing
  std::size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (++entries > kEntriesMax) break;
    const std::string name = entry.path().filename().string();
    const bool has_version = name.size() > library.size() + 1 && name.starts_with(library) &&
                             name[library.size()] == '.';
    if (!has_version) continue;
    const std::string version = name.substr(library.size() + 1);
    if (version.size() > longest.size()) longest = version;
  }
  return longest;
}

}  // namespace

std::string library_version(std::string_view library, std::span<const std::string> variables,
                            const fs::path& root) {
  for (const fs::path& folder : folders_of(variables, root)) {
    std::string version = longest_version(folder, library);
    if (!version.empty()) return version;
  }
  return {};
}

}  // namespace plimsoll
