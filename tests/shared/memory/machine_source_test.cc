#include "shared/memory/machine_source.h"

#include <gtest/gtest.h>

#include "tests/support/fake_root.h"
#include "tests/support/plan_cases.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

std::string described(const char* name) {
  return (golden_path("").parent_path() / "../../configs/machines" / name).string();
}

Result<Machine> machine_of(std::vector<std::string> flags) {
  return find_machine(test_options(std::move(flags)).values);
}

TEST(MachineSource, SimulatedDevicesStandForEachRank) {
  const auto machine = machine_of({"--devices=simulated:96GiB,94GiB", "--tp=2", "--dp=2"});
  ASSERT_TRUE(machine) << machine.error().message;
  ASSERT_EQ(machine->devices.size(), 4U);
  EXPECT_EQ(machine->devices[2].memory_free, 96 * kGiB);
  EXPECT_EQ(machine->devices[3].memory_free, 94 * kGiB);
  EXPECT_TRUE(machine->devices[0].is_simulated);
  EXPECT_FALSE(machine->cpus.empty());  // the host is this machine
}

TEST(MachineSource, ADescriptionIsPlannedForWithItsDevices) {
  const auto machine = machine_of({"--machine=" + described("8x-rtx-pro-6000.json")});
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->devices.size(), 8U);
  EXPECT_FALSE(machine->devices[0].is_simulated);
  const auto simulated =
      machine_of({"--machine=" + described("8x-rtx-pro-6000.json"), "--devices=simulated"});
  ASSERT_TRUE(simulated);
  EXPECT_TRUE(simulated->devices[7].is_simulated);
  EXPECT_EQ(simulated->devices[7].free_before_weights, 94 * kGiB);
}

TEST(MachineSource, CpuRanksOfADescriptionUseItsHost) {
  const auto machine = machine_of({"--machine=" + described("8x-h200.json"), "--devices=cpu"});
  ASSERT_TRUE(machine);
  EXPECT_TRUE(machine->devices.empty());
  EXPECT_EQ(machine->memory_available, 1990 * kGiB);
}

TEST(MachineSource, GpusThatAreNamedAreTakenInThatOrder) {
  FakeRoot root("machine_source");
  root.file("host.json", R"({"host": {"memory": "8GiB"}, "devices": [
      {"name": "a", "uuid": "GPU-a", "memory": "10GiB"},
      {"name": "b", "uuid": "GPU-b", "memory": "20GiB"},
      {"name": "c", "uuid": "GPU-c", "memory": "30GiB"}]})");
  const std::string machine = "--machine=" + (root.path() / "host.json").string();
  const auto chosen = machine_of({"--devices=GPU-c,0", machine});
  ASSERT_TRUE(chosen) << chosen.error().message;
  ASSERT_EQ(chosen->devices.size(), 2U);
  EXPECT_EQ(chosen->devices[0].name, "c");
  EXPECT_EQ(chosen->devices[1].name, "a");
  for (const char* absent : {"--devices=3", "--devices=GPU-d", "--devices=0,GPU-a"}) {
    const auto refused = machine_of({absent, machine});
    ASSERT_FALSE(refused) << absent;
    EXPECT_EQ(refused.error().code, Code::invalid);
  }
}

TEST(MachineSource, GpusByNumberNeedADriverAsAllOfThemDo) {
  const auto all = machine_of({"--devices=cuda"});
  const auto first = machine_of({"--devices=0"});
  if (!all) {
    ASSERT_FALSE(first);
    EXPECT_EQ(first.error().message, all.error().message);
    return;
  }
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->devices.size(), 1U);
}

TEST(MachineSource, SaysWhatIsMissing) {
  const auto sizeless = machine_of({"--devices=simulated"});
  ASSERT_FALSE(sizeless);
  EXPECT_NE(sizeless.error().message.find("simulated:96GiB"), std::string::npos);
  EXPECT_FALSE(machine_of({"--machine=/no/such/file.json"}));
  FakeRoot root("machine_source");
  root.file("host.json", R"({"host": {"memory": "8GiB"}})");
  const auto gpuless =
      machine_of({"--devices=cuda", "--machine=" + (root.path() / "host.json").string()});
  ASSERT_FALSE(gpuless);
  EXPECT_NE(gpuless.error().message.find("describes no GPUs"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
