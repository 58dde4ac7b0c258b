#include "shared/collective/collective_choice.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "shared/options/option_table.h"

namespace plimsoll {
namespace {

Machine gpus(bool has_access) {
  Machine machine;
  machine.devices.resize(8);
  for (Device& device : machine.devices) device.compute_major = 9;
  machine.peers.has_access = has_access;
  return machine;
}

OptionSet asked(const std::string& name) {
  OptionSet options;
  options.values.collective = name;
  options.origins["collective"] = {Source::flag, "--collective"};
  return options;
}

TEST(CollectiveChoice, EveryWordOfTheOptionIsABackendOrAuto) {
  const OptionRow* row = find_option("collective");
  ASSERT_NE(row, nullptr);
  ASSERT_EQ(row->words.size(), kCollectiveKinds.size() + 1);
  for (const CollectiveKind kind : kCollectiveKinds) {
    EXPECT_EQ(std::ranges::count(row->words, std::string_view(collective_name(kind))), 1);
  }
}

TEST(CollectiveChoice, CpusHaveSharedMemoryAlone) {
  const Machine cpus;
  EXPECT_TRUE(check_collective(cpus, asked("auto"), 2));
  EXPECT_TRUE(check_collective(cpus, asked("shm"), 2));
  for (const char* name : {"ipc", "fused", "nccl", "nccl_symmetric"}) {
    const Status refused = check_collective(cpus, asked(name), 2);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, Code::invalid);
    EXPECT_EQ(refused.error().message, std::string("collective: ") + name +
                                           " is not there: it is for ranks on GPUs; there is shm");
  }
}

TEST(CollectiveChoice, GpusHaveAllButSharedMemoryAndWhatIsNotBuilt) {
  EXPECT_TRUE(check_collective(gpus(true), asked("ipc"), 8));
  EXPECT_TRUE(check_collective(gpus(true), asked("fused"), 8));
  EXPECT_TRUE(check_collective(gpus(true), asked("nccl"), 8));
  EXPECT_FALSE(check_collective(gpus(true), asked("shm"), 8));
  EXPECT_FALSE(check_collective(gpus(true), asked("nccl_symmetric"), 8));
}

TEST(CollectiveChoice, WithoutPeerAccessWhatMapsPeersIsRefused) {
  const Status refused = check_collective(gpus(false), asked("ipc"), 8);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "collective: ipc is not there: the driver allows no peer access between these GPUs; "
            "there is nccl");
  EXPECT_TRUE(check_collective(gpus(false), asked("nccl"), 8));
}

TEST(CollectiveChoice, MoreRanksThanOurKernelsTakeAreNcclAlone) {
  EXPECT_FALSE(check_collective(gpus(true), asked("ipc"), 16));
  EXPECT_TRUE(check_collective(gpus(true), asked("nccl"), 16));
}

TEST(CollectiveChoice, TheTwoOptionsMayNotContradictEachOther) {
  OptionSet options = asked("fused");
  options.values.disable_custom_all_reduce = "on";
  const Status refused = check_collective(gpus(true), options, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "collective: fused is not there: disable-custom-all-reduce is on; there is nccl");
}

TEST(CollectiveChoice, CudaOnTheCpuHasOurKernelsAlone) {
  OptionSet options = asked("ipc");
  options.values.devices = "cuda:host";
  EXPECT_TRUE(check_collective({}, options, 2));
  EXPECT_TRUE(check_collective_code({}, options, 2));
  options.values.collective = "fused";
  EXPECT_TRUE(check_collective({}, options, 2));
  for (const char* name : {"shm", "nccl", "nccl_symmetric"}) {
    options.values.collective = name;
    EXPECT_FALSE(check_collective({}, options, 2)) << name;
  }
  options.values.collective = "auto";
  options.values.disable_custom_all_reduce = "on";
  EXPECT_FALSE(check_collective_code({}, options, 2));
}

TEST(CollectiveChoice, AStartOnGpusIsRefusedWhatCanOnlyBePlanned) {
  for (const char* name : {"auto", "ipc", "fused", "nccl"}) {
    EXPECT_TRUE(check_collective_code(gpus(true), asked(name), 2)) << name;
  }
  const Status refused = check_collective_code(gpus(true), asked("nccl_symmetric"), 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "collective: this build has no code for nccl_symmetric; there is ipc, fused and nccl");
  EXPECT_TRUE(check_collective_code(gpus(true), asked("nccl_symmetric"), 1))
      << "one rank exchanges nothing";
  OptionSet off = asked("auto");
  off.values.disable_custom_all_reduce = "on";
  EXPECT_TRUE(check_collective_code(gpus(true), off, 2)) << "NCCL is there";
  Machine rehearsal = gpus(true);
  for (Device& device : rehearsal.devices) device.is_simulated = true;
  EXPECT_TRUE(check_collective_code(rehearsal, asked("nccl_symmetric"), 2));
  EXPECT_TRUE(check_collective_code({}, asked("shm"), 2)) << "ranks on CPUs";
}

TEST(CollectiveChoice, AutoIsRefusedBeforeAStartWherePeersCannotBeMapped) {
  const Status refused = check_collective_code(gpus(false), asked("auto"), 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid);
  EXPECT_NE(refused.error().message.find("add --collective nccl"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(check_collective_code(gpus(false), asked("auto"), 1));
  EXPECT_TRUE(check_collective_code(gpus(false), asked("nccl"), 2));
  OptionSet off = asked("auto");
  off.values.disable_custom_all_reduce = "on";
  EXPECT_TRUE(check_collective_code(gpus(false), off, 2)) << "then auto is nccl";
  Machine rehearsal = gpus(false);
  for (Device& device : rehearsal.devices) device.is_simulated = true;
  EXPECT_TRUE(check_collective_code(rehearsal, asked("auto"), 2));
}

TEST(CollectiveChoice, TheChoiceSaysWhereItIsFrom) {
  EXPECT_EQ(collective_choice_text(asked("nccl")), "nccl (--collective)");
  OptionSet options;
  options.values.disable_custom_all_reduce = "on";
  options.origins["disable-custom-all-reduce"] = {Source::file, "plimsoll.conf:3"};
  EXPECT_EQ(collective_choice_text(options), "auto: nccl; no kernels of ours (plimsoll.conf:3)");
  EXPECT_EQ(collective_choice_text(OptionSet()), "auto: fused, by a test at start");
}

}  // namespace
}  // namespace plimsoll
