#include "shared/collective/collective_forecast.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "shared/base/json.h"
#include "shared/machine/machine_file.h"
#include "shared/model/model_source.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

Machine described(const std::string& name) {
  return *read_machine_file(golden_path("").parent_path() / "../../configs/machines" /
                            (name + ".json"));
}

OptionSet with_tp(std::int64_t tp) {
  OptionSet options;
  options.values.tp = tp;
  return options;
}

// With all its weights, of a config.json.
ModelSpec model_of(const std::string& name) {
  const auto file = parse_json(read_test_file(golden_path("models/" + name + ".json")));
  return *spec_of_config(*file->find("config"), name);
}

CollectiveForecast forecast(const Machine& machine, const char* model_name,
                            const OptionSet& options) {
  const ModelSpec model = model_of(model_name);
  const MemoryPlan plan = *plan_memory(machine, model, options);
  return *forecast_collectives(machine, model, plan, options);
}

const BackendForecast& of(const CollectiveForecast& forecast, std::string_view name) {
  const auto found = std::ranges::find(forecast.backends, name, &BackendForecast::name);
  EXPECT_NE(found, forecast.backends.end()) << name;
  return *found;
}

// The launch that this product is for: 38 tokens/s with a custom all-reduce, 89.5 with NCCL.
TEST(CollectiveForecast, KimiOnEightCardsOverPcieIsRankedAsPublished) {
  const CollectiveForecast story = forecast(described("8x-rtx-pro-6000"), "kimi-k2.5", with_tp(8));
  EXPECT_EQ(story.reductions, 122);
  EXPECT_EQ(story.value_bytes, 2);
  EXPECT_EQ(of(story, "ipc").row_bytes, 14'336);
  const double pull = *of(story, "pull").tokens_per_s;
  const double nccl = *of(story, "nccl").tokens_per_s;
  EXPECT_NEAR(pull, 38, 2);
  EXPECT_NEAR(nccl, 89.5, 4.5);
  EXPECT_NEAR(of(story, "ipc").one.us, 5.3, 0.1);
  EXPECT_LT(nccl, *of(story, "nccl, P2P").tokens_per_s);
  EXPECT_LT(*of(story, "nccl, P2P").tokens_per_s, *of(story, "ipc").tokens_per_s);
  EXPECT_LE(*of(story, "ipc").tokens_per_s, *of(story, "fused").tokens_per_s);
  EXPECT_EQ(story.backends.front().name, "fused");
}

// 5.3, 22, 36 and 205 µs an all-reduce; 2.8 ms for all else.
TEST(CollectiveForecast, AllReducesDecideTheSpeedAsReckonedElsewhere) {
  EXPECT_NEAR(tokens_per_second(1, 2800, 122, 5.3), 290, 3);
  EXPECT_NEAR(tokens_per_second(1, 2800, 122, 22), 180, 3);
  EXPECT_NEAR(tokens_per_second(1, 2800, 122, 36), 140, 2);
  EXPECT_NEAR(tokens_per_second(1, 2800, 122, 205), 36, 1);
}

TEST(CollectiveForecast, AcrossSocketsNcclIsWhatOthersMeasured) {
  Machine machine = described("8x-rtx-pro-6000");
  machine.peers.path = PeerPath::sockets;
  const CollectiveForecast two_sockets = forecast(machine, "kimi-k2.5", with_tp(8));
  EXPECT_NEAR(of(two_sockets, "nccl").one.us, 215, 5) << "205 µs at 12 KiB";
  EXPECT_LT(*of(two_sockets, "nccl").tokens_per_s, 40);
  EXPECT_GT(*of(two_sockets, "ipc").tokens_per_s, 4 * *of(two_sockets, "nccl").tokens_per_s);
}

TEST(CollectiveForecast, WithoutPeerAccessOnlyNcclIsThere) {
  const CollectiveForecast none = forecast(described("4x-rtx-4090"), "llama-3.1-8b", with_tp(4));
  for (const BackendForecast& backend : none.backends) {
    EXPECT_EQ(backend.is_there, backend.name == "nccl") << backend.name;
    EXPECT_NE(backend.is_there, backend.why_not.find("peer access") != std::string::npos);
  }
}

TEST(CollectiveForecast, OverNvlinkNothingIsFarApart) {
  const CollectiveForecast fast = forecast(described("8x-h100"), "llama-3.1-70b", with_tp(8));
  EXPECT_LT(*of(fast, "ipc").tokens_per_s, 2 * *of(fast, "nccl").tokens_per_s);
  EXPECT_GT(*of(fast, "ipc").tokens_per_s, *of(fast, "nccl").tokens_per_s);
}

TEST(CollectiveForecast, MoreRequestsReadMoreExpertsAndMakeMoreTokens) {
  const CollectiveForecast story = forecast(described("8x-rtx-pro-6000"), "kimi-k2.5", with_tp(8));
  ASSERT_TRUE(story.step && story.step_many);
  EXPECT_GT(story.step_many->weights, 2 * story.step->weights);
  EXPECT_LT(story.step_many->weights, 70 * kGiB) << "not all of them";
  const BackendForecast& ipc = of(story, "ipc");
  EXPECT_GT(*ipc.tokens_per_s_many, 2 * *ipc.tokens_per_s);
  EXPECT_LT(*ipc.tokens_per_s_many, kForecastRequests * *ipc.tokens_per_s);
}

TEST(CollectiveForecast, ADenseModelIsReadWholeButItsEmbedding) {
  const CollectiveForecast dense = forecast(described("8x-h100"), "llama-3.1-8b", with_tp(2));
  // 8.03 G weights less 0.53 G of the embedding, in two bytes, over two ranks.
  EXPECT_NEAR(static_cast<double>(dense.step->weights), 7.5e9, 0.05e9);
  EXPECT_EQ(dense.step->weights, dense.step_many->weights);
}

TEST(CollectiveForecast, OptionsTakeBackendsAwayAndSayWhoSaidSo) {
  OptionSet options = with_tp(8);
  options.values.disable_custom_all_reduce = "on";
  options.origins["disable-custom-all-reduce"] = {Source::flag, "--disable-custom-all-reduce"};
  const CollectiveForecast off = forecast(described("8x-rtx-pro-6000"), "kimi-k2.5", options);
  EXPECT_FALSE(of(off, "ipc").is_there);
  EXPECT_FALSE(of(off, "fused").is_there);
  EXPECT_TRUE(of(off, "nccl").is_there);
  EXPECT_NE(off.choice.find("--disable-custom-all-reduce"), std::string::npos) << off.choice;
}

TEST(CollectiveForecast, WhatADescriptionMeasuredIsTaken) {
  Machine machine = described("8x-rtx-pro-6000");
  machine.peers.latency_us = 10;
  const CollectiveForecast slow = forecast(machine, "kimi-k2.5", with_tp(8));
  EXPECT_NEAR(of(slow, "ipc").one.us, 10 + 7 * 14'336 / 55'000.0, 0.01);
  EXPECT_NE(slow.link.find("measured"), std::string::npos) << slow.link;
}

TEST(CollectiveForecast, OneRankAndCpusExchangeNothingOverLinks) {
  const ModelSpec model = model_of("llama-3.1-8b");
  const OptionSet one = with_tp(1);
  const Machine machine = described("8x-h100");
  EXPECT_FALSE(forecast_collectives(machine, model, *plan_memory(machine, model, one), one));
}

TEST(CollectiveForecast, DevicesOfUnknownRateGetTimesButNoSpeed) {
  Machine machine = described("8x-h100");
  for (Device& device : machine.devices) device.memory_rate = 0;
  const CollectiveForecast unknown = forecast(machine, "llama-3.1-8b", with_tp(2));
  EXPECT_FALSE(unknown.step);
  EXPECT_FALSE(of(unknown, "ipc").tokens_per_s);
  EXPECT_GT(of(unknown, "ipc").one.us, 0);
  EXPECT_NE(forecast_report(unknown).find("memory_gb_per_s"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
