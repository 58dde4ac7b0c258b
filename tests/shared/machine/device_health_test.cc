#include "shared/machine/device_health.h"

#include <cstring>
#include <deque>
#include <utility>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

// A driver with two GPUs; handles are pointers to these.
struct FakeGpu {
  const char* uuid = "GPU-1";
  NvmlReturn memory_result = kNvmlSuccess;
  std::uint64_t supported = kNvmlEventXid | kNvmlEventDoubleBitEcc;
  std::uint64_t registered = 0;
  std::uint64_t ecc_errors = 0;
  unsigned remap_pending = 0;
  NvmlReturn count_result = kNvmlSuccess;  // of both
};
struct FakeDriver {
  FakeGpu gpus[2] = {{}, {.uuid = "GPU-2"}};
  FakeGpu slice = {.uuid = "MIG-7"};  // of the second
  std::deque<NvmlEventData> events;
  NvmlReturn wait_result = kNvmlTimeout;  // when there is no event
  int started = 0;
  int sets = 0;
};
FakeDriver* driver = nullptr;  // C callbacks carry no state

FakeGpu& gpu(NvmlHandle handle) { return *static_cast<FakeGpu*>(handle); }

NvmlApi fake_api() {
  NvmlApi api;
  api.init = [] { return ++driver->started, kNvmlSuccess; };
  api.shutdown = [] { return --driver->started, kNvmlSuccess; };
  api.error_text = [](NvmlReturn) { return "no permission"; };
  api.memory = [](NvmlHandle h, NvmlMemory*) { return gpu(h).memory_result; };
  api.device_by_uuid = [](const char* uuid, NvmlHandle* handle) -> NvmlReturn {
    for (FakeGpu* one : {&driver->gpus[0], &driver->gpus[1], &driver->slice}) {
      if (std::strcmp(one->uuid, uuid) == 0) return *handle = one, kNvmlSuccess;
    }
    return 6;  // not found
  };
  api.mig_parent = [](NvmlHandle h, NvmlHandle* parent) -> NvmlReturn {
    if (h != &driver->slice) return 2;  // invalid argument
    return *parent = &driver->gpus[1], kNvmlSuccess;
  };
  api.event_set_create = [](NvmlEventSet* set) {
    ++driver->sets;
    return *set = driver, kNvmlSuccess;
  };
  api.event_set_free = [](NvmlEventSet) { return --driver->sets, kNvmlSuccess; };
  api.event_supported = [](NvmlHandle h, std::uint64_t* types) {
    return *types = gpu(h).supported, kNvmlSuccess;
  };
  api.event_register = [](NvmlHandle h, std::uint64_t types, NvmlEventSet) {
    return gpu(h).registered = types, kNvmlSuccess;
  };
  api.event_wait = [](NvmlEventSet, NvmlEventData* event, unsigned) {
    if (driver->events.empty()) return driver->wait_result;
    *event = driver->events.front();
    driver->events.pop_front();
    return kNvmlSuccess;
  };
  api.ecc_errors = [](NvmlHandle h, int type, int counter, std::uint64_t* count) -> NvmlReturn {
    EXPECT_EQ(type, kNvmlUncorrected);
    EXPECT_EQ(counter, kNvmlVolatile);
    return *count = gpu(h).ecc_errors, gpu(h).count_result;
  };
  api.remapped_rows = [](NvmlHandle h, unsigned*, unsigned*, unsigned* pending, unsigned*) {
    return *pending = gpu(h).remap_pending, gpu(h).count_result;
  };
  return api;
}

class DeviceHealthTest : public testing::Test {
 protected:
  DeviceHealthTest() { driver = &fake_; }
  ~DeviceHealthTest() override { driver = nullptr; }
  DeviceHealth start() {
    Result<DeviceHealth> started = DeviceHealth::start(api_);
    EXPECT_TRUE(started);
    return std::move(*started);
  }
  void tell(int index, std::uint64_t type, std::uint64_t data) {
    fake_.events.push_back({&fake_.gpus[index], type, data, 0, 0});
  }

  FakeDriver fake_;
  NvmlApi api_ = fake_api();
};

TEST_F(DeviceHealthTest, AnXidOfTheDeviceIsAFaultAndOneOfAProgramIsNot) {
  DeviceHealth health = start();
  health.watch("GPU-1");
  health.watch("GPU-2");
  tell(0, kNvmlEventXid, 13);
  tell(1, kNvmlEventXid, 79);
  tell(0, 0x4, 0);  // of its power
  const std::vector<DeviceFault> faults = health.wait(milliseconds(0));
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].uuid, "GPU-2");
  EXPECT_EQ(faults[0].what, "Xid 79: it has fallen off the bus");
  EXPECT_TRUE(health.wait(milliseconds(0)).empty());
}

TEST_F(DeviceHealthTest, WhatWasThereBeforeIsNoFaultAfterADriverThatDidNotAnswerOnce) {
  fake_.gpus[0].ecc_errors = 3;
  fake_.gpus[0].remap_pending = 1;
  DeviceHealth health = start();
  health.watch("GPU-1");
  fake_.gpus[0].count_result = 999;
  EXPECT_TRUE(health.examine().empty());
  fake_.gpus[0].count_result = kNvmlSuccess;
  EXPECT_TRUE(health.examine().empty());
  fake_.gpus[0].ecc_errors = 4;
  EXPECT_EQ(health.examine().size(), 1U);
}

TEST_F(DeviceHealthTest, AnErrorOfTwoBitsIsAFault) {
  DeviceHealth health = start();
  health.watch("GPU-1");
  EXPECT_EQ(fake_.gpus[0].registered, kNvmlEventXid | kNvmlEventDoubleBitEcc);
  tell(0, kNvmlEventDoubleBitEcc, 0);
  EXPECT_EQ(health.wait(milliseconds(0)).size(), 1U);
}

TEST_F(DeviceHealthTest, AFaultOfAGpuIsOneOfItsSlice) {
  DeviceHealth health = start();
  health.watch("MIG-7");
  tell(1, kNvmlEventXid, 48);
  const std::vector<DeviceFault> faults = health.wait(milliseconds(0));
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].uuid, "MIG-7");
}

TEST_F(DeviceHealthTest, WhatOnlyIsCountedIsFoundWhenItIsAskedFor) {
  fake_.gpus[0].ecc_errors = 3;  // long ago
  fake_.gpus[1].supported = 0;
  DeviceHealth health = start();
  health.watch("GPU-1");
  health.watch("GPU-2");
  health.watch("GPU-9");  // nobody knows it
  EXPECT_TRUE(health.examine().empty());
  fake_.gpus[0].ecc_errors = 5;
  fake_.gpus[1].remap_pending = 1;
  const std::vector<DeviceFault> faults = health.examine();
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[0].what, "2 memory errors that could not be corrected");
  EXPECT_EQ(faults[1].what, "rows of its memory are to be remapped, which needs a reset");
  EXPECT_TRUE(health.examine().empty()) << "each once";
}

TEST_F(DeviceHealthTest, AGpuThatIsLostEndsTheWaitAndIsNamed) {
  DeviceHealth health = start();
  health.watch("GPU-1");
  health.watch("GPU-2");
  fake_.wait_result = kNvmlGpuIsLost;
  fake_.gpus[1].memory_result = kNvmlGpuIsLost;
  const std::vector<DeviceFault> faults = health.wait(milliseconds(0));
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].uuid, "GPU-2");
  EXPECT_FALSE(health.has_events()) << "it is asked from here on";
  // Reset, and used again.
  fake_.wait_result = kNvmlTimeout;
  fake_.gpus[1].memory_result = kNvmlSuccess;
  fake_.gpus[0].registered = 0;
  health.watch("GPU-2");
  EXPECT_TRUE(health.has_events());
  EXPECT_NE(fake_.gpus[0].registered, 0U) << "the others too";
  tell(1, kNvmlEventXid, 95);
  tell(0, kNvmlEventXid, 95);
  EXPECT_EQ(health.wait(milliseconds(0)).size(), 2U);
}

// As when it falls off the bus: an event, and from then on the driver has lost it.
TEST_F(DeviceHealthTest, WhatWasToldBeforeAnErrorIsNotForgotten) {
  DeviceHealth health = start();
  health.watch("GPU-1");
  health.watch("GPU-2");
  tell(1, kNvmlEventXid, 79);
  fake_.wait_result = kNvmlGpuIsLost;
  fake_.gpus[0].memory_result = kNvmlGpuIsLost;
  fake_.gpus[1].memory_result = kNvmlGpuIsLost;
  const std::vector<DeviceFault> faults = health.wait(milliseconds(0));
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[0].uuid, "GPU-2");
  EXPECT_EQ(faults[0].what, "Xid 79: it has fallen off the bus");
  EXPECT_EQ(faults[1].uuid, "GPU-1");
}

TEST_F(DeviceHealthTest, OneThatNeedsAResetIsFoundWhenItIsAskedFor) {
  DeviceHealth health = start();
  health.watch("GPU-1");
  fake_.gpus[0].memory_result = kNvmlResetRequired;
  const std::vector<DeviceFault> faults = health.examine();
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].what, "the driver does nothing with it until it is reset");
}

TEST_F(DeviceHealthTest, WhatOnlyAsksForAResetLaterIsNoFaultNow) {
  DeviceHealth health = start();
  health.watch("GPU-1");
  tell(0, kNvmlEventXid, 63);
  tell(0, kNvmlEventXid, 154);
  EXPECT_TRUE(health.wait(milliseconds(0)).empty());
}

TEST_F(DeviceHealthTest, WithoutEventsOrMoreItIsAskedWhatThereIs) {
  api_.event_wait = nullptr;
  api_.ecc_errors = nullptr;
  api_.remapped_rows = nullptr;
  DeviceHealth health = start();
  EXPECT_FALSE(health.has_events());
  health.watch("GPU-1");
  fake_.gpus[0].memory_result = kNvmlGpuIsLost;
  EXPECT_EQ(health.examine().size(), 1U);
}

TEST_F(DeviceHealthTest, WhatItTookItGivesBack) {
  {
    DeviceHealth health = start();
    EXPECT_EQ(fake_.started, 1);
    EXPECT_EQ(fake_.sets, 1);
  }
  EXPECT_EQ(fake_.started, 0);
  EXPECT_EQ(fake_.sets, 0);
  api_.init = [] { return 4; };
  EXPECT_FALSE(DeviceHealth::start(api_));
}

}  // namespace
}  // namespace plimsoll
