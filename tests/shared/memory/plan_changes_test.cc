#include "shared/memory/plan_changes.h"

#include <gtest/gtest.h>

#include "shared/base/text.h"
#include "shared/memory/memory_window.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_golden.h"

namespace plimsoll {
namespace {

std::string changes_of(std::int64_t gpus, Bytes size, std::vector<std::string> flags,
                       const ModelSpec* draft = nullptr) {
  Machine machine = test_machine(64 * kGiB);
  Device device;
  device.memory_total = device.memory_free = size;
  device.compute_major = 9;
  machine.devices.assign(static_cast<std::size_t>(gpus), device);
  const ModelSpec model = *golden_model("llama-8b");
  const OptionSet options = test_options(std::move(flags));
  const Result<PlanProblem> problem = make_problem(machine, model, options.values, draft);
  EXPECT_TRUE(problem) << problem.error().message;
  const PlanQuestion question{
      .machine = machine, .model = model, .options = options, .draft = draft};
  return join(find_changes(question, *problem, find_window(question, *problem)), "\n");
}

TEST(PlanChanges, NameTheLongestContextAndTheSmallerType) {
  const std::string text =
      changes_of(1, 24 * kGiB, {"--assume=weights=15GiB", "--context-length=100000"});
  EXPECT_NE(text.find("--context-length "), std::string::npos) << text;
  EXPECT_NE(text.find("--kv-cache-dtype fp8: 65,536 B a token instead of 131,072"),
            std::string::npos)
      << text;
}

TEST(PlanChanges, NameMoreRanksWhereThereAreDevices) {
  EXPECT_NE(changes_of(2, 20 * kGiB,
                       {"--context-length=120000", "--assume=kv-token=100KiB",
                        "--kv-cache-dtype=fp8", "--assume=weights=10GiB"})
                .find("--context-length"),
            std::string::npos);
}

TEST(PlanChanges, SayWhatTheDraftCosts) {
  const ModelSpec draft = make_llama_spec({.layers = 16,
                                           .hidden = 2048,
                                           .ffn = 8192,
                                           .heads = 32,
                                           .kv_heads = 8,
                                           .head_dim = 64,
                                           .vocab = 128'256,
                                           .dtype = DType::f16});
  const std::string text =
      changes_of(1, 20 * kGiB, {"--assume=weights=15.6GiB", "--draft-model=d.gguf"}, &draft);
  EXPECT_NE(text.find("without --draft-model: frees "), std::string::npos) << text;
}

}  // namespace
}  // namespace plimsoll
