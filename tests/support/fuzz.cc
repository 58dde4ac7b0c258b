#include "tests/support/fuzz.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

class Mutator {
 public:
  Mutator(const FuzzOptions& options, std::span<const std::string> seeds)
      : options_(options), seeds_(seeds), random_(options.seed) {}

  std::string next() {
    std::string input = seeds_.empty() ? std::string() : seeds_[below(seeds_.size())];
    const std::size_t changes = 1 + below(4);
    for (std::size_t i = 0; i < changes; ++i) change(input);
    if (input.size() > options_.input_bytes_max) input.resize(options_.input_bytes_max);
    return input;
  }

 private:
  // In [0, bound); 0 where bound is 0. No standard distribution: theirs differ between libraries.
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::size_t>(random_() % bound);
  }

  void change(std::string& input) {
    const std::size_t at = below(input.size() + 1);
    switch (below(8)) {
      case 0:  // flip a bit
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1:  // set a byte
        if (at < input.size()) input[at] = static_cast<char>(below(256));
        break;
      case 2:  // insert a byte
        input.insert(at, 1, static_cast<char>(below(256)));
        break;
      case 3:  // delete a range
        input.erase(at, 1 + below(std::max<std::size_t>(input.size() / 4, 1)));
        break;
      case 4: {  // repeat a range
        const std::string range = input.substr(at, 1 + below(16));
        for (std::size_t n = 1 + below(64); n > 0; --n) input.insert(at, range);
        break;
      }
      case 5:
        overwrite_integer(input, at);
        break;
      case 6:
        splice(input, at);
        break;
      default:
        if (!options_.dictionary.empty()) {
          input.insert(at, options_.dictionary[below(options_.dictionary.size())]);
        }
        break;
    }
  }

  // Little-endian values at the edge of 1, 4 and 8 byte integers.
  void overwrite_integer(std::string& input, std::size_t at) {
    static constexpr std::array<std::uint64_t, 8> kEdges = {
        0, 1, 0x7F, 0xFFFFFFFFULL, 0x7FFFFFFFULL, 0x7FFFFFFFFFFFFFFFULL, ~0ULL - 16, ~0ULL};
    static constexpr std::array<std::size_t, 3> kWidths = {1, 4, 8};
    const std::uint64_t value = kEdges[below(kEdges.size())];
    const std::size_t width = kWidths[below(kWidths.size())];
    for (std::size_t i = 0; i < width && at + i < input.size(); ++i) {
      input[at + i] = static_cast<char>((value >> (8 * i)) & 0xFF);
    }
  }

  void splice(std::string& input, std::size_t at) {
    if (seeds_.empty()) return;
    const std::string& other = seeds_[below(seeds_.size())];
    const std::size_t from = below(other.size() + 1);
    input.insert(at, other, from, 1 + below(other.size() - from + 1));
  }

  const FuzzOptions& options_;
  std::span<const std::string> seeds_;
  std::mt19937_64 random_;
};

void run_one(const std::string& input, FuzzOne fuzz_one, const char* last_path) {
  if (last_path != nullptr) {
    std::ofstream(last_path, std::ios::binary | std::ios::trunc) << input;
  }
  fuzz_one(std::as_bytes(std::span(input)));
}

}  // namespace

FuzzReport fuzz_corpus(std::span<const std::string> seeds, const FuzzOptions& options,
                       FuzzOne fuzz_one) {
  SCOPED_TRACE("fuzz seed " + std::to_string(options.seed));
  const char* last_path = std::getenv("PLIMSOLL_FUZZ_LAST");
  const auto end = std::chrono::steady_clock::now() + options.time_max;
  FuzzReport report;
  for (const std::string& seed : seeds) {
    run_one(seed, fuzz_one, last_path);
    ++report.inputs;
  }
  Mutator mutator(options, seeds);
  for (std::size_t i = 0; i < options.iterations_max; ++i) {
    if (std::chrono::steady_clock::now() >= end || ::testing::Test::HasFailure()) break;
    run_one(mutator.next(), fuzz_one, last_path);
    ++report.inputs;
  }
  return report;
}

std::vector<std::string> fuzz_seeds_from(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code ignored;  // no such folder: no seeds
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) seeds.push_back(read_test_file(path));
  return seeds;
}

}  // namespace plimsoll
