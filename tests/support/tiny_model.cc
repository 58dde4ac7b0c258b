#include "tests/support/tiny_model.h"

#include "shared/base/file.h"

namespace plimsoll {

Result<std::filesystem::path> write_tiny_model(const TinyModel& shape,
                                               const std::filesystem::path& folder) {
  const std::string bytes = TRY(make_tiny_model(shape));
  std::filesystem::path path = folder / "tiny.gguf";
  TRY(write_file(path, bytes));
  return path;
}

}  // namespace plimsoll
