#include "shared/machine/machine_file.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

std::string mistake(const std::string& json) {
  const Result<Machine> machine = parse_machine(json);
  EXPECT_FALSE(machine) << json;
  if (machine) return "";
  EXPECT_EQ(machine.error().code, Code::invalid);
  return machine.error().message;
}

TEST(MachineFile, ReadsDevicesHostAndLink) {
  const Result<Machine> machine = parse_machine(R"({
    "name": "two", "link": "nvlink",
    "host": {"memory": "1TiB", "available": 1000000000000, "cpus": 8, "numa_nodes": 2},
    "devices": [{"count": 2, "name": "GPU", "memory": "80GiB", "free": "79.5GiB",
                 "compute_capability": "9.0", "multiprocessors": 132, "bar1": "128GiB",
                 "processes": [{"pid": 7, "bytes": "616MiB", "user": "me", "command": "python3"}]}],
    "learned": {"graphs": "1GiB"}})");
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->link, DeviceLink::nvlink);
  ASSERT_EQ(machine->devices.size(), 2U);
  const Device& device = machine->devices[1];
  EXPECT_EQ(device.memory_free, static_cast<Bytes>(79.5 * static_cast<double>(kGiB)));
  EXPECT_EQ(device.compute_major, 9);
  EXPECT_EQ(device.processes.at(0).bytes, 616 * kMiB);
  EXPECT_EQ(machine->memory_available, 1'000'000'000'000);
  ASSERT_EQ(machine->nodes.size(), 2U);
  EXPECT_EQ(machine->nodes[1].cpus, (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(machine->learned.at(0).bytes, kGiB);
}

TEST(MachineFile, NamesTheKeyThatIsWrong) {
  const std::string device = R"({"memory": "1GiB"})";
  EXPECT_NE(mistake(R"({"devices": [{"memroy": "1GiB"}]})").find("did you mean 'memory'"),
            std::string::npos);
  EXPECT_NE(
      mistake(R"({"devices": [{"memory": "1GiB", "cuda_total": "2GiB"}]})").find("cuda_total"),
      std::string::npos);
  EXPECT_NE(
      mistake(R"({"devices": [{"memory": "9GiB", "free": "1GiB", "free_before_weights": "2GiB"}]})")
          .find("free_before_weights"),
      std::string::npos);
  EXPECT_NE(mistake(R"({"devices": [{"memory": "1GiB", "free": "2GiB"}]})").find("free"),
            std::string::npos);
  EXPECT_NE(mistake(R"({"devices": [{"name": "x"}]})").find("devices[].memory"), std::string::npos);
  EXPECT_NE(mistake(R"({"devices": [{"memory": "96"}]})").find("needs a unit"), std::string::npos);
  EXPECT_NE(mistake(R"({"link": "token ring", "devices": []})").find("link"), std::string::npos);
  EXPECT_NE(mistake(R"({"devices": [{"memory": "1GiB", "count": 5000}]})").find("count"),
            std::string::npos);
  EXPECT_NE(mistake(R"({"devices": 3})").find("array"), std::string::npos);
  EXPECT_NE(mistake(R"({})").find("neither"), std::string::npos);
  EXPECT_NE(mistake("[]").find("object"), std::string::npos);
  EXPECT_NE(mistake(R"({"devices": [{"memory": "1GiB", "compute_capability": "9"}]})")
                .find("compute_capability"),
            std::string::npos);
}

TEST(MachineFile, EveryDescriptionThatWeShipIsReadAndRoundTrips) {
  int described = 0;
  const std::filesystem::path folder = golden_path("").parent_path() / "../../configs/machines";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Result<Machine> machine = read_machine_file(entry.path());
    ASSERT_TRUE(machine) << machine.error().message;
    EXPECT_FALSE(machine->devices.empty()) << entry.path();
    for (const Device& device : machine->devices) {
      EXPECT_GT(device.multiprocessors, 0);
      ASSERT_TRUE(device.cuda_total) << entry.path() << ": vLLM's shares are of CUDA's total";
      EXPECT_LE(device.memory_free, *device.cuda_total);
    }
    const Json json = machine_to_json(*machine);
    const Result<Machine> back = parse_machine(dump_json(json));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(dump_json(machine_to_json(*back)), dump_json(json));
    ++described;
  }
  EXPECT_EQ(described, 6);
}

TEST(MachineFile, TheStorysMachineHas94GiBFreeBeforeWeights) {
  const Result<Machine> machine = read_machine_file(golden_path("").parent_path() /
                                                    "../../configs/machines/8x-rtx-pro-6000.json");
  ASSERT_TRUE(machine) << machine.error().message;
  ASSERT_EQ(machine->devices.size(), 8U);
  for (const Device& device : machine->devices) EXPECT_EQ(device.free_before_weights, 94 * kGiB);
  EXPECT_EQ(machine->link, DeviceLink::pcie);
}

TEST(MachineFile, LinksAndRatesReadBackAsWritten) {
  const Result<Machine> machine = parse_machine(R"({"link": "pcie",
    "peers": {"path": "sys", "access": false, "latency_us": 3.5, "gb_per_s": 50,
              "gb_per_s_busy": 20.5},
    "devices": [{"count": 2, "memory": "96GiB", "memory_gb_per_s": 1792, "pcie_generation": 5,
                 "pcie_lanes": 16}]})");
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->peers.path, PeerPath::sockets);
  EXPECT_EQ(machine->peers.has_access, false);
  EXPECT_EQ(machine->peers.bytes_per_us, 50'000);
  EXPECT_EQ(machine->devices[1].memory_rate, 1792e9);
  const Result<Machine> again = parse_machine(dump_json(machine_to_json(*machine)));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->peers, machine->peers);
  EXPECT_EQ(again->devices[0].memory_rate, machine->devices[0].memory_rate);
  EXPECT_EQ(again->devices[0].pcie_generation, 5);
  EXPECT_EQ(again->devices[0].pcie_lanes, 16);
}

TEST(MachineFile, APathThatIsNoneIsAMistake) {
  for (const char* text : {R"({"peers": {"path": "far"}, "devices": [{"memory": 1}]})",
                           R"({"peers": {"path": "nvlink"}, "devices": [{"memory": 1}]})",
                           R"({"link": "nvlink", "peers": {"path": "sys"},
                               "devices": [{"memory": 1}]})"}) {
    const Result<Machine> machine = parse_machine(text);
    ASSERT_FALSE(machine) << text;
    EXPECT_NE(machine.error().message.find("peers.path"), std::string::npos)
        << machine.error().message;
  }
}

TEST(MachineFile, WhatProcessesHoldIsNotFreeUnlessItIsSaid) {
  const auto free = [](const std::string& more) {
    const auto machine = parse_machine(R"({"devices": [{"memory": "80GiB", "processes": [)"
                                       R"({"pid": 7, "bytes": "70GiB"}, {"pid": 8}])" +
                                       more + "}]}");
    EXPECT_TRUE(machine);
    return machine ? machine->devices[0].memory_free : 0;
  };
  EXPECT_EQ(free(""), 10 * kGiB);
  EXPECT_EQ(free(R"(, "free": "9GiB")"), 9 * kGiB);
}

TEST(MachineFile, ControlCharactersAreShownNotObeyed) {
  const auto machine =
      parse_machine(R"({"devices": [{"name": "\u001b[2Jevil", "memory": "80GiB", "processes": [)"
                    R"({"pid": 7, "bytes": "1GiB", "user": "\u0007", "command": "a\nb"}]}]})");
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->devices[0].name, "\\x1b[2Jevil");
  EXPECT_EQ(machine->devices[0].processes[0].user, "\\x07");
  EXPECT_EQ(machine->devices[0].processes[0].command, "a b");
}

TEST(MachineFile, ContradictionsAreNamed) {
  EXPECT_NE(mistake(R"({"devices": [{"memory": "80GiB", "cuda_total": "79GiB", "free": "80GiB"}]})")
                .find("devices[].free must be at most its cuda_total"),
            std::string::npos);
  EXPECT_NE(mistake(R"({"devices": [{"memory": "80GiB"}], "learned": {"kv": "1GiB"}})")
                .find("kv is what the plan decides"),
            std::string::npos);
}

}  // namespace
}  // namespace plimsoll
