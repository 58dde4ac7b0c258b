#include "shared/memory/memory_window.h"

#include <gtest/gtest.h>

#include "shared/options/option_table.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"

namespace plimsoll {
namespace {

bool fits(const Machine& machine, const ModelSpec& model, std::vector<std::string> flags) {
  const Result<MemoryPlan> plan = plan_memory(machine, model, test_options(std::move(flags)));
  return plan && !plan->refusal;
}

std::vector<std::string> with(std::vector<std::string> flags, std::string flag) {
  flags.push_back(std::move(flag));  // of two equal flags the last counts
  return flags;
}

// Each end: accepted at it, refused one step beyond (unless that is the end of the option's range).
void expect_exact(const Machine& machine, const ModelSpec& model,
                  const std::vector<std::string>& flags) {
  const Result<MemoryWindow> window = plan_window(machine, model, test_options(flags));
  ASSERT_TRUE(window) << window.error().message;
  const auto accepted = [&](const std::string& name, std::int64_t value, const char* unit = "") {
    return fits(machine, model, with(flags, "--" + name + "=" + std::to_string(value) + unit));
  };
  if (window->device_memory_min) {
    EXPECT_TRUE(accepted("device-memory", *window->device_memory_min, "B"));
    EXPECT_FALSE(accepted("device-memory", *window->device_memory_min - 1, "B"));
  }
  const auto expect_max = [&](const std::string& name, const std::optional<std::int64_t>& end,
                              std::int64_t range_end) {
    if (!end) return;
    EXPECT_TRUE(accepted(name, *end)) << name << " " << *end;
    if (*end < range_end) {
      EXPECT_FALSE(accepted(name, *end + 1)) << name << " " << *end;
    }
  };
  expect_max("context-length", window->context_length_max, model.context_length);
  expect_max("max-running-requests", window->max_running_requests_max,
             find_option("max-running-requests")->max);
  expect_max("chunked-prefill-size", window->chunked_prefill_size_max,
             find_option("chunked-prefill-size")->max);
  expect_max("max-total-tokens", window->max_total_tokens_max,
             find_option("max-total-tokens")->max);
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
       }) {
    SCOPED_TRACE(flags.empty() ? "no flags" : flags.front());
    expect_exact(test_machine(2 * kGiB), model, flags);
  }
}

TEST(MemoryWindow, SaysThatMoreMemoryWouldWorkWhereTheMachineHasIt) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  const Result<MemoryWindow> window =
      plan_window(test_machine(2 * kGiB), model, test_options({"--device-memory=1MiB"}));
  ASSERT_TRUE(window);
  EXPECT_TRUE(window->device_memory_min);
  EXPECT_FALSE(window->context_length_max);  // not even one token fits into a mebibyte
}

TEST(MemoryWindow, IsEmptyWhereTheMachineIsTooSmall) {
  const ModelSpec model = make_llama_spec(llama3_8b_shape());
  const Machine machine = test_machine(1 * kGiB);
  const Result<MemoryWindow> window = plan_window(machine, model, test_options({}));
  ASSERT_TRUE(window);
  EXPECT_FALSE(window->device_memory_min);
  EXPECT_FALSE(window->context_length_max);
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
  EXPECT_NE(plan->refusal->message.find("--max-total-tokens 2016 or more"), std::string::npos)
      << plan->refusal->message;
  EXPECT_TRUE(fits(test_machine(2 * kGiB), model, with(flags, "--max-total-tokens=2016")));
  EXPECT_FALSE(fits(test_machine(2 * kGiB), model, with(flags, "--max-total-tokens=1999")));
}

}  // namespace
}  // namespace plimsoll
