#include "shared/machine/nvml.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "tests/support/fake_root.h"

namespace plimsoll {
namespace {

// A driver with two GPUs; handles are pointers to these.
struct FakeGpu {
  const char* name = "NVIDIA H200";
  const char* uuid = "GPU-1";
  NvmlMemory memory = {141ULL << 30, 139ULL << 30, 2ULL << 30};
  NvmlReturn memory_result = kNvmlSuccess;
  bool has_link = true;
  bool is_cut = false;
  std::vector<NvmlProcess> processes = {};
  NvmlReturn processes_result = kNvmlSuccess;
};
struct FakeDriver {
  int level = kNvmlOneSwitch;  // of every pair
  int peer_status = 0;
  std::vector<FakeGpu> gpus = {{}, {.uuid = "GPU-2"}};
  FakeGpu slice = {.name = "NVIDIA H200 MIG 2g.35gb",
                   .uuid = "MIG-7",
                   .memory = {35ULL << 30, 34ULL << 30, 1ULL << 30}};
  int started = 0;
};
FakeDriver* driver = nullptr;  // C callbacks carry no state

FakeGpu& gpu(NvmlHandle handle) { return *static_cast<FakeGpu*>(handle); }

NvmlApi fake_api() {
  NvmlApi api;
  api.init = [] { return ++driver->started, kNvmlSuccess; };
  api.shutdown = [] { return --driver->started, kNvmlSuccess; };
  api.error_text = [](NvmlReturn) { return "no permission"; };
  api.device_count = [](unsigned* count) {
    *count = static_cast<unsigned>(driver->gpus.size());
    return kNvmlSuccess;
  };
  api.device_at = [](unsigned i, NvmlHandle* handle) {
    *handle = &driver->gpus[i];
    return kNvmlSuccess;
  };
  api.name = [](NvmlHandle h, char* text, unsigned size) {
    std::strncpy(text, gpu(h).name, size - 1);
    return kNvmlSuccess;
  };
  api.uuid = [](NvmlHandle h, char* text, unsigned size) {
    std::strncpy(text, gpu(h).uuid, size - 1);
    return kNvmlSuccess;
  };
  api.memory = [](NvmlHandle h, NvmlMemory* memory) {
    *memory = gpu(h).memory;
    return gpu(h).memory_result;
  };
  api.capability = [](NvmlHandle, int* major, int* minor) {
    *major = 9;
    *minor = 0;
    return kNvmlSuccess;
  };
  api.cores = [](NvmlHandle, unsigned* cores) {
    *cores = 132 * 128;
    return kNvmlSuccess;
  };
  api.bar1 = [](NvmlHandle, NvmlBar1* bar1) {
    bar1->total = 256ULL << 30;
    return kNvmlSuccess;
  };
  api.link_state = [](NvmlHandle h, unsigned link, unsigned* active) {
    *active = gpu(h).has_link && link == 2 ? 1 : 0;
    return kNvmlSuccess;
  };
  api.processes = [](NvmlHandle h, unsigned* count, NvmlProcess* list) -> NvmlReturn {
    if (gpu(h).processes_result != kNvmlSuccess) return gpu(h).processes_result;
    const std::vector<NvmlProcess>& all = gpu(h).processes;
    const bool fits = *count >= all.size();
    *count = static_cast<unsigned>(all.size());
    if (!fits) return kNvmlInsufficientSize;
    std::copy(all.begin(), all.end(), list);
    return kNvmlSuccess;
  };
  api.bus_bits = [](NvmlHandle, unsigned* bits) {
    *bits = 512;
    return kNvmlSuccess;
  };
  api.clock_max = [](NvmlHandle, int clock, unsigned* mhz) {
    *mhz = clock == kNvmlMemoryClock ? 14'001 : 1;
    return kNvmlSuccess;
  };
  api.pcie_generation = [](NvmlHandle, unsigned* generation) {
    *generation = 5;
    return kNvmlSuccess;
  };
  api.pcie_lanes = [](NvmlHandle, unsigned* lanes) {
    *lanes = 16;
    return kNvmlSuccess;
  };
  api.peer_status = [](NvmlHandle, NvmlHandle, int, int* status) {
    *status = driver->peer_status;
    return kNvmlSuccess;
  };
  api.ancestor = [](NvmlHandle, NvmlHandle, int* level) {
    *level = driver->level;
    return kNvmlSuccess;
  };
  api.mig_mode = [](NvmlHandle h, unsigned* current, unsigned* pending) {
    *current = *pending = gpu(h).is_cut ? 1 : 0;
    return kNvmlSuccess;
  };
  api.mig_count_max = [](NvmlHandle, unsigned* count) {
    *count = 7;
    return kNvmlSuccess;
  };
  api.mig_at = [](NvmlHandle, unsigned i, NvmlHandle* handle) {
    if (i != 3) return 6;  // not found
    *handle = &driver->slice;
    return kNvmlSuccess;
  };
  return api;
}

class Nvml : public testing::Test {
 protected:
  Nvml() { driver = &fake_; }
  ~Nvml() override { driver = nullptr; }
  FakeDriver fake_;
};

TEST_F(Nvml, ReadsEveryGpuAndShutsDown) {
  const Result<NvmlDevices> found = read_nvml(fake_api(), 0);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->devices.size(), 2U);
  const Device& device = found->devices[1];
  EXPECT_EQ(device.uuid, "GPU-2");
  EXPECT_EQ(device.memory_free, 139 * kGiB);
  EXPECT_EQ(device.multiprocessors, 132);
  EXPECT_EQ(device.bar1, 256 * kGiB);
  EXPECT_FALSE(device.is_unified);
  EXPECT_EQ(found->link, DeviceLink::nvlink);
  EXPECT_EQ(fake_.started, 0);
}

TEST_F(Nvml, AGpuThatIsLostKeepsItsNumberAndHasNoMemory) {
  fake_.gpus[0].memory_result = kNvmlGpuIsLost;
  const Result<NvmlDevices> found = read_nvml(fake_api(), 0);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->devices.size(), 2U);
  EXPECT_EQ(found->devices[0].name, "GPU 0");
  EXPECT_EQ(found->devices[0].memory_total, 0);
  EXPECT_EQ(found->devices[1].uuid, "GPU-2");
}

TEST_F(Nvml, AGpuThatNeedsAResetIsAsGoodAsLost) {
  fake_.gpus[0].memory_result = kNvmlResetRequired;
  const Result<NvmlDevices> found = read_nvml(fake_api(), 0);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->devices[0].memory_total, 0);
  EXPECT_EQ(found->devices[1].uuid, "GPU-2");
}

TEST_F(Nvml, OneThatAnswersNothingKeepsNobodyFromTheOthersWhereItIsLeftOut) {
  fake_.gpus[0].memory_result = 999;
  EXPECT_FALSE(read_nvml(fake_api(), 0));
  const Result<NvmlDevices> found = read_nvml(fake_api(), 0, "/", LostGpus::left_out);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->devices.size(), 2U);
  EXPECT_EQ(found->devices[0].memory_total, 0);
  EXPECT_EQ(found->devices[0].uuid, "");
  EXPECT_EQ(found->devices[1].uuid, "GPU-2");
}

TEST_F(Nvml, OneGpuWithoutALinkMakesTheMachinePcie) {
  fake_.gpus[0].has_link = false;
  EXPECT_EQ(read_nvml(fake_api(), 0)->link, DeviceLink::pcie);
}

TEST_F(Nvml, NamesTheProcessesThatHoldMemory) {
  FakeRoot root("nvml_processes");
  root.file("proc/4711/status", "Name:\tpython3\nUid:\t4242\t4242\t4242\t4242\n");
  root.file("proc/4711/cmdline", std::string("python3\0-m\0server\0", 18));
  fake_.gpus[0].processes = {{4711, 616ULL << 20, 0, 0}, {99, ~0ULL, 0, 0}};
  const Result<NvmlDevices> found = read_nvml(fake_api(), 0, root.path());
  ASSERT_TRUE(found) << found.error().message;
  const std::vector<DeviceProcess>& processes = found->devices[0].processes;
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes[0].bytes, 616 * kMiB);
  EXPECT_EQ(processes[0].user, "4242");
  EXPECT_EQ(processes[0].command, "python3 -m server");
  EXPECT_EQ(processes[1].bytes, std::nullopt);
}

TEST_F(Nvml, WhereProcessesAreNotToldTheGpuIsUsedAllTheSame) {
  fake_.gpus[0].processes_result = 3;  // not supported: virtual GPUs, containers
  const Result<NvmlDevices> found = read_nvml(fake_api(), 0);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(found->devices[0].processes.empty());
}

TEST_F(Nvml, MoreProcessesThanExpectedAreAllListed) {
  for (unsigned pid = 1; pid <= 200; ++pid) fake_.gpus[0].processes.push_back({pid, 1, 0, 0});
  EXPECT_EQ(read_nvml(fake_api(), 0)->devices[0].processes.size(), 200U);
}

TEST_F(Nvml, AGpuThatIsCutIsItsSlices) {
  fake_.gpus.resize(1);
  fake_.gpus[0].is_cut = true;
  const Result<NvmlDevices> found = read_nvml(fake_api(), 0);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->devices.size(), 1U);
  EXPECT_EQ(found->devices[0].uuid, "MIG-7");
  EXPECT_EQ(found->devices[0].memory_total, 35 * kGiB);
  EXPECT_EQ(found->devices[0].multiprocessors, 132 * 35 / 141);
}

TEST_F(Nvml, MemoryThatTheDriverWillNotTellIsAnErrorAndNotZero) {
  fake_.gpus[1].memory_result = 4;
  const Result<NvmlDevices> found = read_nvml(fake_api(), 0);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::unavailable);
  EXPECT_NE(found.error().message.find("GPU 1: no permission"), std::string::npos)
      << found.error().message;
  EXPECT_EQ(fake_.started, 0);
}

TEST_F(Nvml, AGpuThatSharesTheHostsMemoryHasWhatTheHostHas) {
  FakeRoot root("nvml_unified");
  root.file("proc/meminfo", "MemTotal:       124780544 kB\nMemAvailable:   119537664 kB\n");
  fake_.gpus = {{.name = "NVIDIA GB10", .memory = {0, 0, 0}, .memory_result = 3}};
  const Result<NvmlDevices> found = read_nvml(fake_api(), 114 * kGiB, root.path());
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(found->devices[0].is_unified);
  EXPECT_EQ(found->devices[0].memory_total, 119 * kGiB);
  EXPECT_EQ(found->devices[0].memory_free, 114 * kGiB);
}

TEST_F(Nvml, ADriverThatDoesNotStartSaysWhy) {
  NvmlApi api = fake_api();
  api.init = [] { return 9; };
  const Result<NvmlDevices> found = read_nvml(api, 0);
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("no permission"), std::string::npos);
}

TEST_F(Nvml, RatesAreWhatClockAndBusGive) {
  const Result<NvmlDevices> found = read_nvml(fake_api(), 0);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_NEAR(found->devices[0].memory_rate, 1792e9, 1e9);
  EXPECT_EQ(found->devices[0].pcie_generation, 5);
  EXPECT_EQ(found->devices[0].pcie_lanes, 16);
}

TEST_F(Nvml, TheLongestWayBetweenTwoCounts) {
  for (FakeGpu& gpu : fake_.gpus) gpu.has_link = false;
  const auto path = [&](int level) {
    fake_.level = level;
    return read_nvml(fake_api(), 0)->peers.path;
  };
  EXPECT_EQ(path(10), PeerPath::one_switch);
  EXPECT_EQ(path(20), PeerPath::switches);
  EXPECT_EQ(path(30), PeerPath::host_bridge);
  EXPECT_EQ(path(40), PeerPath::host_bridge);
  EXPECT_EQ(path(50), PeerPath::sockets);
}

TEST_F(Nvml, PeersMayReachEachOtherAsTheDriverSays) {
  EXPECT_EQ(read_nvml(fake_api(), 0)->peers.has_access, true);
  EXPECT_EQ(read_nvml(fake_api(), 0)->peers.path, PeerPath::nvlink);
  fake_.peer_status = 1;
  EXPECT_EQ(read_nvml(fake_api(), 0)->peers.has_access, false);
  NvmlApi old = fake_api();
  old.peer_status = nullptr;
  old.ancestor = nullptr;
  for (FakeGpu& gpu : fake_.gpus) gpu.has_link = false;
  EXPECT_EQ(read_nvml(old, 0)->peers.has_access, std::nullopt) << "unknown is not no";
  EXPECT_EQ(read_nvml(old, 0)->peers.path, PeerPath::unknown);
}

}  // namespace
}  // namespace plimsoll
