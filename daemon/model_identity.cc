#include "daemon/model_identity.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>

#include "shared/base/text.h"
#include "shared/generation/fingerprint.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// A folder of more files is no model.
constexpr std::size_t kFilesMax = 10'000;

bool is_of_model(const fs::path& file) {
  const std::string ending = file.extension().string();
  return ending == ".json" || ending == ".safetensors" || ending == ".model" || ending == ".gguf";
}

std::string line_of(const fs::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) return "";
  return fmt::format("{} {}:{} {} {}.{:09}\n", file.string(), found.st_dev, found.st_ino,
                     found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
}

// The first line of one that the other has not: "path device:inode size time".
std::string first_difference(std::string_view one, std::string_view other) {
  const std::vector<std::string_view> others = split(other, '\n');
  for (const std::string_view line : split(one, '\n')) {
    if (!line.empty() && std::ranges::find(others, line) == others.end()) return std::string(line);
  }
  return "";
}

std::string path_in(std::string line) {
  for (int i = 0; i < 3; ++i) line.resize(std::min(line.rfind(' '), line.size()));
  return line;
}

std::string files_of(const std::string& model) {
  std::error_code failed;
  if (!fs::is_directory(model, failed)) return line_of(model);
  std::vector<fs::path> files;
  for (fs::directory_iterator at(model, failed), end; !failed && at != end; at.increment(failed)) {
    if (files.size() < kFilesMax && is_of_model(at->path())) files.push_back(at->path());
  }
  std::ranges::sort(files);
  std::string lines;
  for (const fs::path& file : files) lines += line_of(file);
  return lines;
}

std::string content_of(const std::string& model) {
  const Result<std::string> content = model_fingerprint(model);
  return content ? *content : "";
}

}  // namespace

ModelIdentity model_identity(const std::string& model) {
  return {.files = files_of(model), .content = content_of(model)};
}

bool is_same_model(const ModelIdentity& one, const ModelIdentity& other) {
  return one.files == other.files || (!one.content.empty() && one.content == other.content);
}

Status check_model_identity(const std::string& model, const ModelIdentity& planned) {
  const std::string present = files_of(model);
  if (present == planned.files) return {};
  if (!planned.content.empty() && content_of(model) == planned.content) return {};
  std::string changed = first_difference(planned.files, present);
  if (changed.empty()) changed = first_difference(present, planned.files);
  return invalid(fmt::format(
      "{} has been changed or replaced since this generation was planned, and what it serves must "
      "not change with a restart: `plimsoll restart` takes the model that is there now",
      changed.empty() ? model : path_in(std::move(changed))));
}

}  // namespace plimsoll
