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
  window.options = {{.option = "mem-fraction-static", .low = 772'000, .high = 934'000},
                    {.option = "device-memory", .low = 100 * kMiB},
                    {.option = "kv-cache-bytes", .is_empty = true},
                    {.option = "context-length", .low = 32, .high = 8192}};
  EXPECT_EQ(window_report(window),
            "--mem-fraction-static 0.772 to 0.934; --device-memory from 100MiB; "
            "--context-length up to 8,192");
}

TEST(MemoryReport, ExplainsATermWithItsNumbers) {
  const Result<MemoryPlan> plan = plan_memory(
      test_machine(4 * kGiB), make_llama_spec(smollm2_shape()), test_options({"--tp=2"}));
  ASSERT_TRUE(plan);
  const std::string text = explain_term(*plan, Term::logits);
  EXPECT_NE(text.find("rank 0.0: logits = "), std::string::npos) << text;
  EXPECT_NE(text.find("64 rows x (576 inputs"), std::string::npos) << text;
  EXPECT_NE(text.find("computed, in phase buffers"), std::string::npos) << text;
  EXPECT_NE(explain_term(*plan, Term::graphs).find("graphs takes nothing"), std::string::npos);
  const Json json = explain_term_json(*plan, Term::logits);
  EXPECT_EQ(json.find("phase")->as_string(), "buffers");
  const auto& ranks = json.find("ranks")->as_array();
  ASSERT_EQ(ranks.size(), 2U);  // the leader gathers
  EXPECT_EQ(ranks[0].find("ranks")->as_array()[0].as_string(), "0.0");
  EXPECT_EQ(ranks[0].find("bytes")->as_int(), plan->ranks[0].bytes(Term::logits));
  EXPECT_NE(ranks[0].find("formula")->as_string().find("gathered"), std::string::npos);
  EXPECT_TRUE(
      explain_term_json(*plan, Term::graphs).find("ranks")->as_array()[0].find("trust")->is_null());
  EXPECT_EQ(term_from_name("ep-buffer"), Term::ep_buffer);
  EXPECT_EQ(term_from_name("vibes"), std::nullopt);
}

TEST(MemoryReport, AWindowThatDoesNotBeginWhereItsOptionDoesHasBothEnds) {
  MemoryWindow window;
  window.options = {{.option = "tp", .low = 8, .high = 8},
                    {.option = "dp", .low = 1, .high = 4},
                    {.option = "device-memory", .low = 144 * kMiB + 1, .high = kGiB}};
  EXPECT_EQ(window_report(window), "--tp 8; --dp up to 4; --device-memory from 145MiB");
}

}  // namespace
}  // namespace plimsoll
