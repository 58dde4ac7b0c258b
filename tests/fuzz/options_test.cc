// Flags, environment and file of any content give options or mistakes, never anything else.
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/check.h"
#include "shared/base/text.h"
#include "shared/options/option_parse.h"
#include "shared/options/option_print.h"
#include "tests/support/fuzz.h"

namespace plimsoll {
namespace {

// What was accepted prints and reads back as itself.
void check_round_trip(const OptionSet& set) {
  const Result<OptionSet> from_json = option_set_from_json(option_set_to_json(set));
  CHECK(from_json);
  CHECK(from_json->values == set.values);
}

void fuzz_one(std::span<const std::byte> input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  const Result<OptionSet> file = parse_option_text(text, "fuzz.conf");
  if (file) check_round_trip(*file);
  CHECK(file || file.error().code == Code::invalid);
  OptionSources sources;
  sources.file = "/dev/null";
  for (const std::string_view line : split(text, '\n')) {
    if (sources.flags.size() == 16) break;
    sources.flags.emplace_back(line);
    sources.environment.emplace_back("PLIMSOLL_" + std::string(line.substr(0, line.find('='))),
                                     std::string(line));
  }
  const Result<OptionSet> all = parse_options(sources);
  if (all) check_round_trip(*all);
  if (const Result<Json> json = parse_json(text)) {
    const Result<OptionSet> set = option_set_from_json(*json);
    if (set) check_round_trip(*set);
  }
}

TEST(OptionsFuzz, NeverCrashes) {
  const std::vector<std::string> seeds = {
      "port = 8001\n# note\nmodel = \"/a b\"\n",
      "--port\n8001\n--tp=2\n",
      "port = 1\nport = 2\n[x]\n= 3\nx\n",
      "device-memory = 1.5GiB\nstep-time-max = 250ms\nthreads = auto\n",
      dump_json(option_set_to_json(OptionSet{})),
  };
  const FuzzOptions options = {
      .dictionary = {"auto", "GiB", "ms", "port", "=", "--", "\n", "\r", "#", "\"", "[", "-"}};
  EXPECT_GT(fuzz_corpus(seeds, options, fuzz_one).inputs, seeds.size());
}

}  // namespace
}  // namespace plimsoll

PLIMSOLL_FUZZ_MAIN(plimsoll::fuzz_one)
