#include "shared/memory/layout_window.h"

#include <gtest/gtest.h>

#include "shared/memory/machine_source.h"
#include "shared/memory/memory_window.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_golden.h"

namespace plimsoll {
namespace {

Machine gpus(std::int64_t count, Bytes size) {
  Machine machine = test_machine(64 * kGiB);
  Device device;
  device.memory_total = device.memory_free = size;
  device.compute_major = 9;
  machine.devices.assign(static_cast<std::size_t>(count), device);
  return machine;
}

MemoryWindow window_of(const Machine& machine, const ModelSpec& model,
                       std::vector<std::string> flags) {
  const Result<MemoryWindow> window = plan_window(machine, model, test_options(std::move(flags)));
  EXPECT_TRUE(window) << window.error().message;
  return window ? *window : MemoryWindow{};
}

TEST(LayoutWindow, EndsAtTheDevicesThatThereAre) {
  const MemoryWindow window =
      window_of(gpus(8, 80 * kGiB), *golden_model("llama-8b"), {"--tp=2", "--dp=2"});
  const OptionWindow* tp = window.open("tp");
  ASSERT_NE(tp, nullptr);
  EXPECT_EQ(tp->low, 1);
  EXPECT_EQ(tp->high, 4);
  EXPECT_EQ(tp->binds_low, "the end of the option's range");
  EXPECT_EQ(tp->binds_high, "8 devices");
  EXPECT_EQ(window.open("dp")->high, 4);
}

TEST(LayoutWindow, BeginsWhereARanksShareIsSmallEnough) {
  const MemoryWindow window =
      window_of(gpus(8, 6 * kGiB), make_llama_spec(llama3_8b_shape()), {"--tp=8"});
  const OptionWindow* tp = window.open("tp");
  ASSERT_NE(tp, nullptr);
  EXPECT_EQ(tp->low, 2);  // 8 GiB of weights
  EXPECT_EQ(tp->binds_low, "what each rank would hold, with KV of one request");
}

TEST(LayoutWindow, SaysNothingOfOtherRanksWhereARanksShareIsGiven) {
  for (const char* given : {"weights=2GiB", "kv-token=4096B"}) {
    const MemoryWindow window = window_of(gpus(8, 6 * kGiB), make_llama_spec(llama3_8b_shape()),
                                          {"--tp=8", std::string("--assume=") + given});
    EXPECT_EQ(window.find("tp"), nullptr) << "at tp 1 a rank would hold eight times as much";
    EXPECT_NE(window.find("dp"), nullptr);
  }
  const MemoryWindow window = window_of(gpus(8, 6 * kGiB), make_llama_spec(llama3_8b_shape()),
                                        {"--tp=8", "--assume=context=200MiB"});
  EXPECT_NE(window.find("tp"), nullptr);
}

TEST(LayoutWindow, IsTheRunNearestToWhatWasAsked) {
  // Groups of four experts' ranks: other numbers of ranks are none.
  const MemoryWindow window =
      window_of(gpus(8, 140 * kGiB), *golden_model("qwen3-235b"), {"--tp=8", "--ep=4"});
  const OptionWindow* tp = window.open("tp");
  ASSERT_NE(tp, nullptr);
  EXPECT_EQ(tp->low, 8);
  EXPECT_EQ(tp->high, 8);
  EXPECT_NE(tp->binds_low.find("4 groups of experts and tp 7 ranks do not divide each other"),
            std::string::npos)
      << tp->binds_low;
}

TEST(LayoutWindow, OfCpusIsWhatTheModelCanBeDividedOverAndWhatThereIsForEach) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  EXPECT_EQ(window_of(test_machine(2 * kGiB), model, {}).open("tp")->high, 9);
  EXPECT_EQ(window_of(test_machine(2 * kGiB), model, {}).open("tp")->binds_high,
            "what this model can be divided over");
  const MemoryWindow tight =
      window_of(test_machine(2 * kGiB), model, {"--device-memory=201MiB", "--dp=2"});
  const OptionWindow* replicas = tight.open("dp");
  ASSERT_NE(replicas, nullptr);
  EXPECT_LT(replicas->high, 64);
  EXPECT_EQ(replicas->binds_high, "available memory, divided over as many");
}

TEST(LayoutWindow, OfSimulatedDevicesIsNotBoundByThoseThatWereMadeForTheRanks) {
  const ModelSpec model = make_llama_spec(llama3_8b_shape());
  const OptionSet options = test_options({"--devices=simulated:6GiB"});
  const Result<Machine> machine = find_machine(options.values);
  ASSERT_TRUE(machine);
  const Result<MemoryWindow> window = plan_window(*machine, model, options);
  ASSERT_TRUE(window);
  ASSERT_NE(window->open("tp"), nullptr);
  EXPECT_EQ(window->open("tp")->low, 2);
  const Result<MemoryPlan> plan = plan_memory(*machine, model, options);
  ASSERT_TRUE(plan && plan->refusal);
  EXPECT_NE(plan->refusal->message.find("  --tp 2: "), std::string::npos) << plan->refusal->message;
}

TEST(LayoutWindow, IsEmptyWhereNoNumberOfRanksIsEnough) {
  const MemoryWindow window =
      window_of(gpus(2, 4 * kGiB), make_llama_spec(llama3_8b_shape()), {"--tp=2"});
  EXPECT_TRUE(window.find("tp")->is_empty);
  EXPECT_TRUE(window.find("dp")->is_empty);
}

}  // namespace
}  // namespace plimsoll
