#include <gtest/gtest.h>

#include "shared/collective/collective_forecast.h"

namespace plimsoll {
namespace {

CollectiveForecast sample() {
  const LinkCost link{.alpha = 3.5, .single = 55'000, .busy = 25'000};
  CollectiveForecast forecast{.choice = "auto",
                              .ranks = 8,
                              .reductions = 122,
                              .value_bytes = 2,
                              .prefill_tokens = 8192,
                              .link = "pcie, phb: measured"};
  forecast.step =
      StepForecast{.requests = 1, .read_us = 4000, .launch_us = 1500, .formula = "weights / rate"};
  BackendForecast ipc{.name = "ipc",
                      .about = "ours",
                      .row_bytes = 14'336,
                      .one = one_shot(link, 8, 14'336),
                      .many = two_shot(link, 8, 458'752),
                      .prefill = two_shot(link, 8, kGiB),
                      .tokens_per_s = 162.4,
                      .source = "a table of links"};
  BackendForecast none{.name = "nccl_symmetric",
                       .about = "theirs",
                       .is_there = false,
                       .why_not = "this build has no code for it",
                       .source = "a guess"};
  forecast.backends = {ipc, none};
  return forecast;
}

TEST(ForecastReport, HasALineForEachBackend) {
  const std::string report = forecast_report(sample());
  EXPECT_NE(report.find(
                "\n  ipc                   5.3 µs      39.1 µs     75.2 ms          162       ?\n"),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("\n  nccl_symmetric  not there: this build has no code for it\n"),
            std::string::npos)
      << report;
}

TEST(ForecastReport, TheExplanationHasEveryFormulaWithItsNumbersAndSource) {
  const std::string words = explain_forecast(sample());
  for (const char* part :
       {"weights / rate",
        "3.5 + 7 x 14,336 B / 55 GB/s = 5.3 µs (one-shot); x 122 -> 162.4 tokens/s",
        "2 x 3.5 + 2 x 7 / 8 x 458,752 B / 25 GB/s", "numbers: a table of links",
        "theirs; not there: this build has no code for it"}) {
    EXPECT_NE(words.find(part), std::string::npos) << part << "\n" << words;
  }
}

TEST(ForecastReport, JsonHasWhatTheTableHas) {
  const Json json = forecast_to_json(sample());
  EXPECT_EQ(json.find("reductions")->as_int(), 122);
  EXPECT_TRUE(json.find("step_many")->is_null());
  const Json& ipc = json.find("backends")->as_array()[0];
  EXPECT_EQ(ipc.find("name")->as_string(), "ipc");
  EXPECT_EQ(ipc.find("decode")->find("bytes")->as_int(), 14'336);
  EXPECT_NEAR(ipc.find("tokens_per_s")->as_double(), 162.4, 0.01);
  EXPECT_TRUE(ipc.find("tokens_per_s_many")->is_null());
}

}  // namespace
}  // namespace plimsoll
