#include "router/api/metrics.h"

#include <gtest/gtest.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

bool has_line(const std::string& text, std::string_view line) {
  for (std::string_view one : split(text, '\n')) {
    if (one == line) return true;
  }
  return false;
}

TEST(Metrics, GivesOurNamesAndVllms) {
  Metrics metrics;
  metrics.prompt_tokens = 12;
  metrics.cached_tokens = 8;
  metrics.finished["stop"] = 3;
  const std::string text =
      metrics_text(metrics, {.running = 2, .waiting = 5, .kv_usage = 0.25}, "ship");
  EXPECT_TRUE(has_line(text, R"(plimsoll_requests_running{model_name="ship"} 2)")) << text;
  EXPECT_TRUE(has_line(text, R"(vllm:num_requests_waiting{model_name="ship"} 5)"));
  EXPECT_TRUE(has_line(text, R"(vllm:kv_cache_usage_perc{model_name="ship"} 0.25)"));
  EXPECT_TRUE(has_line(text, R"(plimsoll_prompt_tokens_total{model_name="ship"} 12)"));
  EXPECT_TRUE(has_line(text, R"(plimsoll_cached_prompt_tokens_total{model_name="ship"} 8)"));
  EXPECT_TRUE(has_line(text, R"(vllm:prefix_cache_hits_total{model_name="ship"} 8)"));
  EXPECT_TRUE(
      has_line(text, R"(vllm:request_success_total{model_name="ship",finished_reason="stop"} 3)"));
}

TEST(Metrics, EveryFamilyIsDeclaredOnceAndBeforeItsSamples) {
  Metrics metrics;
  metrics.responses[200] = 1;
  const std::string text = metrics_text(metrics, {}, "ship");
  std::vector<std::string> families;
  for (std::string_view line : split(text, '\n')) {
    if (line.empty() || line.starts_with("# HELP")) continue;
    if (line.starts_with("# TYPE ")) {
      families.emplace_back(split(line, ' ')[2]);
      continue;
    }
    ASSERT_FALSE(families.empty());
    EXPECT_TRUE(line.starts_with(families.back())) << line;
  }
  std::vector<std::string> sorted = families;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
}

TEST(Metrics, BucketsAddUp) {
  Metrics metrics;
  metrics.request_s.observe(0.001);
  metrics.request_s.observe(0.2);
  metrics.request_s.observe(1000);
  const std::string text = metrics_text(metrics, {}, "ship");
  const std::string bucket = "plimsoll_request_seconds_bucket{model_name=\"ship\",le=";
  EXPECT_TRUE(has_line(text, bucket + "\"0.001\"} 1")) << text;
  EXPECT_TRUE(has_line(text, bucket + "\"0.1\"} 1"));
  EXPECT_TRUE(has_line(text, bucket + "\"0.25\"} 2"));
  EXPECT_TRUE(has_line(text, bucket + "\"300\"} 2"));
  EXPECT_TRUE(has_line(text, bucket + "\"+Inf\"} 3"));
  EXPECT_TRUE(has_line(text, "plimsoll_request_seconds_count{model_name=\"ship\"} 3"));
}

TEST(Metrics, LabelsAreEscaped) {
  const std::string text = metrics_text({}, {}, "a\"b\\c\nd");
  EXPECT_NE(text.find(R"(model_name="a\"b\\c\nd")"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
