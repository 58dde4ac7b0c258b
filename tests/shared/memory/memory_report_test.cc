#include "shared/memory/memory_report.h"

#include <gtest/gtest.h>

#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"

namespace plimsoll {
namespace {

std::string report(std::vector<std::string> flags) {
  const Result<MemoryPlan> plan = plan_memory(
      test_machine(4 * kGiB), make_llama_spec(smollm2_shape()), test_options(std::move(flags)));
  EXPECT_TRUE(plan);
  return memory_report(*plan);
}

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

TEST(MemoryReport, RanksWithEqualLedgersShareOne) {
  const std::string text = report({"--tp=3", "--dp=2"});
  EXPECT_EQ(count(text, "  budget"), 2U) << text;  // the leaders', and all others'
  EXPECT_NE(text.find("ranks 0.0, 1.0:"), std::string::npos) << text;
}

TEST(MemoryReport, SaysWhatIsMissingWhereItDoesNotFit) {
  const std::string text = report({"--device-memory=100MiB"});
  EXPECT_EQ(text.rfind("does not fit:", 0), 0U) << text;
  EXPECT_NE(text.find("  missing"), std::string::npos) << text;
}

TEST(MemoryReport, NotesStandBelow) {
  EXPECT_NE(report({}).find("\nnote: context-length is "), std::string::npos);
}

TEST(MemoryReport, TheWindowIsOneLine) {
  MemoryWindow window;
  window.device_memory_min = 100 * kMiB;
  window.context_length_max = 8192;
  EXPECT_EQ(window_report(window), "--device-memory from 100.0 MiB; --context-length up to 8,192");
}

}  // namespace
}  // namespace plimsoll
