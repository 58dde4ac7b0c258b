// Hostile logs and Python literals: read or refused, in bounded memory, and always explained.
#include "shared/memory/foreign_log/foreign_log.h"

#include <gtest/gtest.h>

#include "shared/base/text.h"
#include "shared/generation/log_launch.h"
#include "shared/memory/foreign_log/log_plan.h"
#include "shared/memory/foreign_log/log_report.h"
#include "shared/memory/foreign_log/python_literal.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void fuzz_log(std::span<const std::byte> bytes) {
  const auto log = parse_foreign_log(text_of(bytes));
  if (!log) {
    EXPECT_EQ(log.error().code, Code::invalid);
    return;
  }
  EXPECT_LE(log->end_line.size(), kEndLineMax);
  const LogExplanation explanation =
      explain_log(*log, "x", {.kv_bytes_per_token = 70'272.0, .context = {}});
  EXPECT_TRUE(is_utf8(log_report(*log, explanation)));
  EXPECT_TRUE(parse_json(dump_json(log_report_json(*log, explanation))));
  for (const LogOption& option : options_of_log(*log)) EXPECT_TRUE(is_utf8(option.value));
  for (const std::string& note : log_plan_notes(*log)) EXPECT_TRUE(is_utf8(note));
  const LaunchFacts facts = launch_of_log(*log, "x");
  EXPECT_TRUE(compare_launches(facts, facts, judge_of_logs(&*log, &*log)).empty());
}
PLIMSOLL_FUZZ_MAIN(fuzz_log)

void fuzz_literal(std::span<const std::byte> bytes) {
  const PythonArguments found = parse_python_arguments(text_of(bytes));
  for (const auto& [name, value] : found.values) {
    EXPECT_TRUE(is_utf8(python_value_text(value)));
  }
}

TEST(FuzzForeignLog, LogsAreReadOrRefusedAndAlwaysExplained) {
  std::vector<std::string> seeds;
  for (std::string& text : fuzz_seeds_from(golden_path("logs"))) {
    if (text.size() < 4096) seeds.push_back(std::move(text));
  }
  ASSERT_GT(seeds.size(), 10U);
  FuzzOptions options;
  options.seed = 20261130;
  options.dictionary = {"server_args=ServerArgs(",
                        "non-default args: {",
                        "avail mem=-9e99 GB",
                        "[TP1]",
                        "\x1b[",
                        "Tried to allocate 99999999999 GiB",
                        "#tokens: -1",
                        "\n",
                        "mem_fraction_static=nan",
                        "'gpu_memory_utilization': 1e300",
                        "total capacity of 79.25 GiB",
                        "KV Cache is allocated. K size: 0 GB",
                        "(inf/0.0 GiB)",
                        "max_total_num_tokens=0 max_running_requests=0"};
  EXPECT_GT(fuzz_corpus(seeds, options, fuzz_log).inputs, 20U);
}

TEST(FuzzForeignLog, LiteralsAreReadAsFarAsTheyGo) {
  const std::vector<std::string> seeds = {
      "a=1, b='x', c={'k': [1, (2,)]}, d=Name(x=1), e=<E.A: 1>, f=torch.bfloat16)",
      "'a': None, 'b': {'c': True}, 'd': ['\\x41\\u00e9']}", "a=[[[[[[", "{{{{((((", "a='"};
  FuzzOptions options;
  options.seed = 20261130;
  options.dictionary = {"(", ")", "[", "{", "}", "'",    "\\",
                        "=", ":", ",", "<", ">", "None", "\\U00110000"};
  EXPECT_GT(fuzz_corpus(seeds, options, fuzz_literal).inputs, 100U);
}

}  // namespace
}  // namespace plimsoll
