// Fuzz: runs one parser over seeds and a bounded number of seeded mutations, as an ordinary test.
//
// A fuzz target is `void fuzz_one(std::span<const std::byte>)`: it must return for every input and
// checks its own invariants with CHECK or EXPECT. Built with -DPLIMSOLL_LIBFUZZER (clang,
// -fsanitize=fuzzer), PLIMSOLL_FUZZ_MAIN(fuzz_one) makes it a libFuzzer program instead.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace plimsoll {

using FuzzOne = void (*)(std::span<const std::byte>);

struct FuzzOptions {
  std::uint64_t seed = 1;
  std::size_t iterations_max = 20'000;
  std::chrono::milliseconds time_max{800};  // whichever comes first
  std::size_t input_bytes_max = 64 * 1024;  // no mutation grows beyond this
  // Fragments that a mutation may insert: keywords, magic numbers, delimiters of the format.
  std::vector<std::string> dictionary;
};

struct FuzzReport {
  std::size_t inputs = 0;  // seeds and mutations that ran
};

// Every seed as it is, then mutations of them: bits, bytes, integers at the edge of their range,
// deletions, repetitions, splices, dictionary words. The same seed gives the same inputs; on a
// crash the last input lies in the file that $PLIMSOLL_FUZZ_LAST names, if set.
FuzzReport fuzz_corpus(std::span<const std::string> seeds, const FuzzOptions& options,
                       FuzzOne fuzz_one);

// The files of a folder, in order of their names; empty where there is no such folder.
std::vector<std::string> fuzz_seeds_from(const std::filesystem::path& folder);

}  // namespace plimsoll

#ifdef PLIMSOLL_LIBFUZZER
#define PLIMSOLL_FUZZ_MAIN(fuzz_one)                                                  \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    fuzz_one(std::as_bytes(std::span(data, size)));                                   \
    return 0;                                                                         \
  }
#else
#define PLIMSOLL_FUZZ_MAIN(fuzz_one)
#endif
