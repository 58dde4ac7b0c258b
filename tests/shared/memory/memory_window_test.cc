#include "shared/memory/memory_window.h"

#include <gtest/gtest.h>

#include "shared/memory/machine_source.h"
#include "shared/options/option_table.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_golden.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

bool fits(const Machine& machine, const ModelSpec& model, std::vector<std::string> flags) {
  const OptionSet options = test_options(std::move(flags));
  // Simulated devices are as many as the ranks.
  const Machine made = machine_of_ranks(machine, options.values).value_or(machine);
  const Result<MemoryPlan> plan = plan_memory(made, model, options);
  return plan && !plan->refusal;
}

std::vector<std::string> with(std::vector<std::string> flags, std::string flag) {
  flags.push_back(std::move(flag));  // of two equal flags the last counts
  return flags;
}

std::string value_text(const OptionRow& row, std::int64_t value) {
  if (row.kind == OptionKind::fraction) return format_fraction(value);
  return std::to_string(value) + (row.kind == OptionKind::size ? "B" : "");
}

// Each end of each window: accepted at it, refused one step beyond (unless that is the end of the
// option's range).
void expect_exact(const Machine& machine, const ModelSpec& model,
                  const std::vector<std::string>& flags) {
  const Result<MemoryWindow> window = plan_window(machine, model, test_options(flags));
  ASSERT_TRUE(window) << window.error().message;
  EXPECT_FALSE(window->options.empty());
  for (const OptionWindow& option : window->options) {
    const OptionRow& row = *find_option(option.option);
    const std::int64_t step = row.kind == OptionKind::fraction ? kFractionStep : 1;
    const auto accepted = [&](std::int64_t value) {
      return fits(machine, model, with(flags, "--" + option.option + "=" + value_text(row, value)));
    };
    SCOPED_TRACE(option.option);
    if (option.is_empty) {
      if (option.low > 0) {
        EXPECT_FALSE(accepted(option.low));
      }
      continue;
    }
    EXPECT_TRUE(accepted(option.low)) << option.low;
    if (option.low - step >= row.min) {
      EXPECT_FALSE(accepted(option.low - step)) << option.low;
    }
    EXPECT_TRUE(accepted(option.high)) << option.high;
    const bool is_range_end =
        option.high + step > row.max ||
        (option.option == "context-length" && option.high == model.context_length) ||
        option.option == "device-memory";
    if (!is_range_end) {
      EXPECT_FALSE(accepted(option.high + step)) << option.high;
    }
    EXPECT_FALSE(option.binds_low.empty());
    EXPECT_FALSE(option.binds_high.empty());
  }
}

TEST(MemoryWindow, EachEndIsExact) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  for (const std::vector<std::string>& flags : {
           std::vector<std::string>{},
           {"--tp=2"},
           {"--device-memory=140MiB"},
           {"--device-memory=260MiB", "--max-running-requests=9"},
           {"--tp=2", "--dp=2", "--context-length=7000"},
           {"--max-total-tokens=9000", "--max-running-requests=40"},
           {"--device-memory=180MiB", "--max-total-tokens=2000", "--context-length=1500"},
           {"--mem-fraction-static=0.3"},
           {"--mem-fraction-static=0.01", "--context-length=3000"},
           {"--gpu-memory-utilization=0.5", "--tp=2"},
           {"--kv-cache-bytes=200MiB", "--max-running-requests=40"},
       }) {
    SCOPED_TRACE(flags.empty() ? "no flags" : flags.front());
    expect_exact(test_machine(2 * kGiB), model, flags);
  }
}

TEST(MemoryWindow, EachEndIsExactOnDevices) {
  const Result<ModelSpec> kimi = golden_model("kimi-k2.5");
  const Result<ModelSpec> llama = golden_model("llama-8b");
  ASSERT_TRUE(kimi && llama);
  const auto machine = [](const OptionSet& options) { return *find_machine(options.values); };
  const std::string pro =
      (golden_path("").parent_path() / "../../configs/machines" / "8x-rtx-pro-6000.json").string();
  for (const std::vector<std::string>& flags : {
           std::vector<std::string>{"--tp=8", "--assume=weights=72.29GiB"},
           {"--tp=8", "--assume=weights=72.29GiB", "--mem-fraction-static=0.55"},
           {"--tp=8", "--assume=weights=72.29GiB", "--gpu-memory-utilization=0.9"},
           {"--tp=8", "--assume=weights=72.29GiB", "--max-total-tokens=100000"},
           {"--tp=8", "--ep=8", "--assume=weights=72.29GiB", "--context-length=9000"},
       }) {
    SCOPED_TRACE(flags.back());
    std::vector<std::string> all = with(flags, "--machine=" + pro);
    expect_exact(machine(test_options(all)), *kimi, flags);
  }
  const std::vector<std::string> simulated = {"--devices=simulated:24GiB", "--tp=2",
                                              "--assume=weights=7.5GiB"};
  expect_exact(machine(test_options(simulated)), *llama, simulated);
}

// A step above the size that has smaller defaults: with the memory of those, others than the ones
// that bind as they are have not free what is claimed.
TEST(MemoryWindow, EachEndIsExactOnUnlikeDevicesOfAUtilization) {
  Machine machine = test_machine(2048 * kGiB, 192);
  const auto add = [&](Bytes mebibytes, Bytes slack) {
    Device device;
    device.name = "GPU";
    device.memory_total = 61'696 * kMiB;
    device.cuda_total = mebibytes * kMiB;
    device.memory_free = std::min(mebibytes, mebibytes * 9 / 10 + 1 + slack + 500) * kMiB;
    device.context = 500 * kMiB;
    device.compute_major = 9;
    device.multiprocessors = 132;
    machine.devices.push_back(device);
  };
  add(60'796, 400);
  add(61'300, 200);
  add(61'696, 10);
  for (Bytes i = 0; i < 3; ++i) add(61'600 + i, 9'999);
  const Result<ModelSpec> model = golden_model("llama-70b");
  ASSERT_TRUE(model);
  expect_exact(machine, *model,
               {"--devices=cuda", "--dp=6", "--assume=weights=40GiB", "--max-running-requests=256",
                "--gpu-memory-utilization=0.9"});
}

TEST(MemoryWindow, SaysThatMoreMemoryWouldWorkWhereTheMachineHasIt) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  const Result<MemoryWindow> window =
      plan_window(test_machine(2 * kGiB), model, test_options({"--device-memory=1MiB"}));
  ASSERT_TRUE(window);
  EXPECT_NE(window->open("device-memory"), nullptr);
  EXPECT_EQ(window->open("context-length"), nullptr);  // not even one token fits into a mebibyte
}

TEST(MemoryWindow, IsEmptyWhereTheMachineIsTooSmall) {
  const ModelSpec model = make_llama_spec(llama3_8b_shape());
  const Machine machine = test_machine(1 * kGiB);
  const Result<MemoryWindow> window = plan_window(machine, model, test_options({}));
  ASSERT_TRUE(window);
  EXPECT_EQ(window->open("device-memory"), nullptr);
  EXPECT_EQ(window->open("context-length"), nullptr);
  const Result<MemoryPlan> plan = plan_memory(machine, model, test_options({}));
  ASSERT_TRUE(plan && plan->refusal);
  EXPECT_NE(plan->refusal->message.find("smaller model"), std::string::npos)
      << plan->refusal->message;
}

TEST(MemoryWindow, NamesTheTotalThatHoldsLessThanOneRequest) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  const std::vector<std::string> flags = {"--max-total-tokens=1000", "--context-length=2000"};
  const Result<MemoryPlan> plan = plan_memory(test_machine(2 * kGiB), model, test_options(flags));
  ASSERT_TRUE(plan && plan->refusal);
  EXPECT_NE(plan->refusal->message.find("--max-total-tokens 2016 to "), std::string::npos)
      << plan->refusal->message;
  EXPECT_TRUE(fits(test_machine(2 * kGiB), model, with(flags, "--max-total-tokens=2016")));
  EXPECT_FALSE(fits(test_machine(2 * kGiB), model, with(flags, "--max-total-tokens=1999")));
}

}  // namespace
}  // namespace plimsoll
