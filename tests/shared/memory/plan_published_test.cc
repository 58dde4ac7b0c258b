// Properties of plans for published models on the machines that we ship.

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "shared/machine/machine_file.h"
#include "shared/model/model_source.h"
#include "tests/support/plan_chance.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

// A machine that we ship, a model as it is published, options by chance.
void try_published(Chance& chance) {
  const auto machines = files_of(golden_path("../../configs/machines"));
  const auto models = files_of(golden_path("models"));
  const auto& machine_file = machines[static_cast<std::size_t>(chance.pick(std::ssize(machines)))];
  const auto& model_file = models[static_cast<std::size_t>(chance.pick(std::ssize(models)))];
  Machine machine = *read_machine_file(machine_file);
  const Json json = *parse_json(read_test_file(model_file));
  const ModelSpec model = *spec_of_config(*json.find("config"), "published");
  const std::int64_t tp = std::int64_t{1} << chance.pick(4);
  std::vector<std::string> flags = {"--tp=" + std::to_string(tp)};
  const std::string rule = rule_of(chance);  // or one replica
  if (chance.pick(3) == 0 && rule != "--dp=1") flags.emplace_back("--dp=2");
  if (chance.pick(3) == 0) flags.push_back("--ep=" + std::to_string(tp));
  if (chance.pick(3) == 0)
    flags.push_back("--context-length=" + std::to_string(500 + chance.pick(30'000)));
  if (chance.pick(3) == 0)
    flags.push_back("--max-running-requests=" + std::to_string(1 + chance.pick(600)));
  if (chance.pick(4) == 0)
    flags.push_back("--chunked-prefill-size=" + std::to_string(512 << chance.pick(6)));
  if (chance.pick(4) == 0)
    flags.push_back("--cuda-graph-max-bs=" + std::to_string(chance.pick(513)));
  if (chance.pick(4) == 0) flags.emplace_back("--kv-cache-dtype=int8");
  if (chance.pick(2) == 0) flags.push_back("--assume=weights=" + gib(chance.between(4, 60)));
  std::string words = machine_file.stem().string() + " " + model_file.stem().string() + " " + rule;
  for (const std::string& flag : flags) words += " " + flag;
  SCOPED_TRACE(words);
  const Result<MemoryPlan> plan = plan_memory(machine, model, test_options(with(flags, rule)));
  if (!plan) return;  // more ranks than devices, experts that there are not, ...
  for (const RankPlan& rank : plan->ranks) {
    EXPECT_EQ(rank.total() <= rank.budget || plan->refusal.has_value(), true);
    EXPECT_EQ(rank.bytes(Term::kv), plan->kv.blocks * 32 * plan->kv.bytes_per_token);
  }
  if (plan->refusal) {
    EXPECT_NE(plan->refusal->message.find("the plan does not fit: "), std::string::npos)
        << plan->refusal->message;
  }
  check_ends(machine, model, flags, rule);
  if (plan->refusal) return;
  // More memory, whether what is free was measured or follows from the total.
  for (Device& device : machine.devices) {
    const auto more = static_cast<Bytes>(chance.between(0, 8) * static_cast<double>(kGiB));
    device.memory_total += more;
    device.memory_free += more;
    if (device.cuda_total) *device.cuda_total += more;
    if (device.free_before_weights) *device.free_before_weights += more;
  }
  EXPECT_GE(tokens_of(plan_of(machine, model, with(flags, rule))), plan->kv.tokens);
}

TEST(PlanPublished, PropertiesHoldForPublishedModelsOnMachinesThatWeShip) {
  Chance chance(kSeed + 6);
  const std::uint64_t rounds = number_from("PLIMSOLL_ROUNDS", 12);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed + 6 << " round " << round);
    try_published(chance);
  }
}

}  // namespace
}  // namespace plimsoll
