#include "tests/support/test_data.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

namespace plimsoll {

std::filesystem::path test_cache_dir() {
  if (const char* cache = std::getenv("PLIMSOLL_CACHE"); cache != nullptr && *cache != '\0') {
    return cache;
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : "/") / ".cache" / "plimsoll";
}

std::filesystem::path default_model_path() {
  return test_cache_dir() / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

std::filesystem::path test_vocab(std::string_view name) {
  return test_cache_dir() / "test-data" / "vocabs" / ("ggml-vocab-" + std::string(name) + ".gguf");
}

std::filesystem::path test_template(std::string_view name) {
  return test_cache_dir() / "test-data" / "templates" / name;
}

std::filesystem::path golden_path(std::string_view relative) {
  return std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests" / "golden" / relative;
}

std::string read_test_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  EXPECT_TRUE(in.good()) << "cannot read " << path;
  return std::move(bytes).str();
}

}  // namespace plimsoll
