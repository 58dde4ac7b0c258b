// PlanChance: machines, models and options by chance, for properties that hold for all of them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/memory/memory_plan.h"
#include "shared/options/fraction.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_golden.h"

namespace plimsoll {

// By hand: PLIMSOLL_SEED=N, and PLIMSOLL_ROUNDS=N for more of what is tried on published models.
inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}
inline const std::uint64_t kSeed = number_from("PLIMSOLL_SEED", 20261130);

inline MemoryPlan plan_of(const Machine& machine, const ModelSpec& model,
                          std::vector<std::string> flags) {
  const Result<MemoryPlan> plan = plan_memory(machine, model, test_options(std::move(flags)));
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : MemoryPlan{};
}

inline std::string gib(double value) { return std::to_string(value) + "GiB"; }

// A case by chance: one machine, model and set of options, without what sizes KV.
struct Chance {
  explicit Chance(std::uint64_t seed) : random(seed) {}
  double between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  }
  std::int64_t pick(std::int64_t count) {
    return std::uniform_int_distribution<std::int64_t>(0, count - 1)(random);
  }

  ModelSpec model() {
    const char* names[] = {"kimi-k2.5", "llama-70b", "llama-8b", "qwen3-235b", "deepseek-r1"};
    return *golden_model(names[pick(5)]);
  }
  std::vector<std::string> flags(std::int64_t tp) {
    std::vector<std::string> flags = {"--tp=" + std::to_string(tp),
                                      "--assume=weights=" + gib(between(4, 50)),
                                      "--chunked-prefill-size=" + std::to_string(1024 << pick(4)),
                                      "--cuda-graph-max-bs=" + std::to_string(8 << pick(5))};
    if (pick(2) == 0) flags.push_back("--context-length=" + std::to_string(1000 + pick(30'000)));
    if (pick(2) == 0) flags.push_back("--max-running-requests=" + std::to_string(1 + pick(300)));
    if (pick(3) == 0) flags.emplace_back("--kv-cache-dtype=fp8");
    if (pick(4) == 0) flags.push_back("--max-total-tokens=" + std::to_string(5000 + pick(900'000)));
    return flags;
  }
  std::vector<Bytes> sizes(std::int64_t tp) {
    std::vector<Bytes> sizes;
    const Bytes same = static_cast<Bytes>(between(16, 140)) * kGiB;
    const bool is_even = pick(2) == 0;
    for (std::int64_t i = 0; i < tp; ++i) {
      sizes.push_back(is_even ? same : static_cast<Bytes>(between(16, 140)) * kGiB);
    }
    return sizes;
  }

  std::mt19937_64 random;
};

inline std::vector<std::string> with(std::vector<std::string> flags, std::string one) {
  flags.push_back(std::move(one));
  return flags;
}

inline std::string rule_of(Chance& chance) {
  switch (chance.pick(4)) {
    case 0:
      return "--mem-fraction-static=" + std::to_string(chance.between(0.3, 0.97)).substr(0, 5);
    case 1:
      return "--gpu-memory-utilization=" + std::to_string(chance.between(0.3, 0.97)).substr(0, 5);
    case 2:
      return "--kv-cache-bytes=" + gib(chance.between(0.5, 60));
    default:
      return "--dp=1";
  }
}

inline Tokens tokens_of(const MemoryPlan& plan) { return plan.refusal ? 0 : plan.kv.tokens; }

inline std::string value_text(const OptionWindow& window, std::int64_t value) {
  const bool is_fraction =
      window.option == "mem-fraction-static" || window.option == "gpu-memory-utilization";
  if (is_fraction) return format_fraction(value);
  const bool is_size = window.option == "kv-cache-bytes" || window.option == "device-memory";
  return std::to_string(value) + (is_size ? "B" : "");
}

// One case of windows: each end that is open is tried, and one step beyond it. Returns how many.
inline int check_ends(const Machine& machine, const ModelSpec& model,
                      const std::vector<std::string>& without, const std::string& rule) {
  const std::vector<std::string> flags = with(without, rule);
  const Result<MemoryWindow> window = plan_window(machine, model, test_options(flags));
  EXPECT_TRUE(window) << window.error().message;
  if (!window) return 0;
  int checked = 0;
  for (const OptionWindow& option : window->options) {
    SCOPED_TRACE(testing::Message() << option.option << " " << option.low << " to " << option.high);
    if (option.is_empty) continue;
    const bool is_fraction =
        option.option == "mem-fraction-static" || option.option == "gpu-memory-utilization";
    const std::int64_t step = is_fraction ? kFractionStep : 1;
    // What sizes KV takes the place of another option that does.
    const bool sizes_kv = is_fraction || option.option == "kv-cache-bytes";
    // Options that are no longer taken (below 1, beyond the model) are refused too.
    const auto fits = [&](std::int64_t value) {
      const Result<OptionSet> set =
          parse_options({.flags = with(sizes_kv ? without : flags,
                                       "--" + option.option + "=" + value_text(option, value)),
                         .environment = {},
                         .file = "/dev/null"});
      if (!set) return false;
      const Result<MemoryPlan> plan = plan_memory(machine, model, *set);
      return plan && !plan->refusal;
    };
    EXPECT_TRUE(fits(option.low));
    EXPECT_TRUE(fits(option.high));
    EXPECT_FALSE(fits(option.low - step)) << option.binds_low;
    // More than there is of a machine's memory is cut, not refused.
    if (option.option != "device-memory") {
      EXPECT_FALSE(fits(option.high + step)) << option.binds_high;
    }
    ++checked;
  }
  return checked;
}

}  // namespace plimsoll
