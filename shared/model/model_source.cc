#include "shared/model/model_source.h"

#include <system_error>

#include <fmt/format.h>

#include "shared/model/gguf.h"

namespace plimsoll {

Result<ModelSpec> read_model(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error) || path.extension() == ".json") {
    return invalid(fmt::format("model {}: expected a GGUF file", path.native()));
  }
  const GgufFile file = TRY(GgufFile::open(path));
  return TRY_CONTEXT(fmt::format("model {}: ", path.native()), read_model_spec(file));
}

}  // namespace plimsoll
