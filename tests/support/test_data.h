// TestData: where tests find the files that tools/fetch-test-data and tools/fetch-model fetched.
//
// A test that needs one begins with SKIP_WITHOUT(path). In CI such a skip is a failure, because CI
// fetches first.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace plimsoll {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitizerBuild = true;
#else
inline constexpr bool kIsSanitizerBuild = false;
#endif

// Bulk work of a single thread has nothing to show ThreadSanitizer, which takes twenty times as
// long over it: there a test divides its rounds by this.
#ifdef __SANITIZE_THREAD__
inline constexpr int kBulkDivisor = 10;
#else
inline constexpr int kBulkDivisor = 1;
#endif

// $PLIMSOLL_CACHE, else $HOME/.cache/plimsoll.
std::filesystem::path test_cache_dir();
// SmolLM2-135M-Instruct.Q4_1.gguf; may be absent.
std::filesystem::path default_model_path();
// A vocabulary-only GGUF file by name: "gpt-2", "llama-bpe", "qwen2", ...; may be absent.
std::filesystem::path test_vocab(std::string_view name);
// A chat template of the test data by file name: "Qwen-Qwen3-0.6B.jinja"; may be absent.
std::filesystem::path test_template(std::string_view name);
// A file below tests/golden; always present.
std::filesystem::path golden_path(std::string_view relative);
// The whole file; the test fails (and "" comes back) where it cannot be read.
std::string read_test_file(const std::filesystem::path& path);

}  // namespace plimsoll

#define SKIP_WITHOUT(path)                                                         \
  if (!std::filesystem::exists(path)) {                                            \
    GTEST_SKIP() << (path) << " is absent: run tools/fetch-test-data to fetch it"; \
  }

// For what is about the real model or about speed; the tests of a binary are one CTest entry there.
#define SKIP_IN_SANITIZER_BUILDS(why) \
  if (kIsSanitizerBuild) GTEST_SKIP() << "sanitizer builds leave it out: " << (why)
