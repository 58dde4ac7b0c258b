#include "daemon/device_watch.h"

#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>
#include <poll.h>

namespace plimsoll {
namespace {

TEST(DeviceWatch, WithoutADeviceThereIsNoThreadAndNothingToTake) {
  DeviceWatch watch;
  watch.watch("");  // a rank on the CPU
  watch.examine();
  EXPECT_EQ(watch.fd(), -1);
  EXPECT_TRUE(watch.take().empty());
}

// A driver with one GPU; its callbacks carry no state, and another thread calls them.
struct FakeDriver {
  std::mutex mutex;
  std::condition_variable changed;
  int started = 0;
  int starts = 0;
  int watched = 0;
  NvmlReturn init_result = kNvmlSuccess;
  NvmlReturn memory_result = kNvmlSuccess;
  std::vector<std::uint64_t> xids;
  bool has_events = true;

  template <typename What>
  auto with(What what) {
    const std::lock_guard lock(mutex);
    changed.notify_all();
    return what();
  }
  template <typename Condition>
  bool await(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, seconds(20), condition);
  }
};
FakeDriver* driver = nullptr;

NvmlApi fake_api() {
  NvmlApi api;
  api.init = [] {
    return driver->with([] {
      ++driver->starts;
      if (driver->init_result == kNvmlSuccess) ++driver->started;
      return driver->init_result;
    });
  };
  api.shutdown = [] { return driver->with([] { return --driver->started, kNvmlSuccess; }); };
  api.error_text = [](NvmlReturn) { return "as injected"; };
  api.memory = [](NvmlHandle, NvmlMemory*) {
    return driver->with([] { return driver->memory_result; });
  };
  api.device_by_uuid = [](const char*, NvmlHandle* handle) {
    return driver->with([&] { return ++driver->watched, *handle = driver, kNvmlSuccess; });
  };
  api.event_set_create = [](NvmlEventSet* set) {
    return driver->with(
        [&] { return *set = driver, driver->has_events ? kNvmlSuccess : NvmlReturn{3}; });
  };
  api.event_set_free = [](NvmlEventSet) { return kNvmlSuccess; };
  api.event_register = [](NvmlHandle, std::uint64_t, NvmlEventSet) { return kNvmlSuccess; };
  api.event_wait = [](NvmlEventSet, NvmlEventData* event, unsigned longest) -> NvmlReturn {
    std::unique_lock lock(driver->mutex);
    const bool is_there =
        driver->changed.wait_for(lock, milliseconds(longest), [] { return !driver->xids.empty(); });
    if (!is_there) return kNvmlTimeout;
    *event = {driver, kNvmlEventXid, driver->xids.back(), 0, 0};
    driver->xids.pop_back();
    return kNvmlSuccess;
  };
  return api;
}

class DeviceWatchTest : public testing::Test {
 protected:
  DeviceWatchTest() { driver = &fake_; }
  ~DeviceWatchTest() override { driver = nullptr; }
  std::vector<DeviceFault> await(DeviceWatch& watch) const {
    pollfd wanted{watch.fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&wanted, 1, 20'000), 1);
    return watch.take();
  }
  bool await_watched(int times) {
    return fake_.await([this, times] { return fake_.watched == times; });
  }

  FakeDriver fake_;
  NvmlApi api_ = fake_api();
};

TEST_F(DeviceWatchTest, WhatTheDriverSaysByItselfIsTaken) {
  DeviceWatch watch(api_);
  watch.watch("GPU-1");
  ASSERT_TRUE(await_watched(1));
  fake_.with([this] { fake_.xids = {79}; });
  const std::vector<DeviceFault> faults = await(watch);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].uuid, "GPU-1");
  EXPECT_TRUE(watch.take().empty());
}

TEST_F(DeviceWatchTest, OneThatTellsOfNothingIsAskedWhenAWorkerHasDied) {
  fake_.has_events = false;
  DeviceWatch watch(api_);
  watch.watch("GPU-1");
  ASSERT_TRUE(await_watched(1));
  fake_.with([this] { fake_.memory_result = kNvmlGpuIsLost; });
  watch.examine();
  const std::vector<DeviceFault> faults = await(watch);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].what, "the driver has lost it");
}

TEST_F(DeviceWatchTest, TheDriverIsHeldOnlyWhileThereIsSomethingToWatch) {
  {
    DeviceWatch watch(api_);
    watch.watch("GPU-1");
    watch.watch("GPU-2");
    ASSERT_TRUE(await_watched(2));
    // One in quarantine: the other is watched on, from a driver that has let go of both.
    watch.keep({"GPU-2"});
    ASSERT_TRUE(await_watched(3));
    EXPECT_TRUE(fake_.await([this] { return fake_.starts == 2 && fake_.started == 1; }));
    watch.keep({"GPU-2", "GPU-3"});  // nothing that is watched goes
    watch.keep({});
    EXPECT_TRUE(fake_.await([this] { return fake_.started == 0; }));
    watch.watch("GPU-1");  // it was reset
    ASSERT_TRUE(await_watched(4));
    EXPECT_TRUE(fake_.await([this] { return fake_.starts == 3 && fake_.started == 1; }));
  }
  EXPECT_EQ(fake_.started, 0);
}

TEST_F(DeviceWatchTest, ADriverThatDoesNotAnswerAtFirstIsAskedAgainWithTheNextWorker) {
  fake_.init_result = 999;
  DeviceWatch watch(api_);
  watch.watch("GPU-1");
  ASSERT_TRUE(fake_.await([this] { return fake_.starts == 1; }));
  fake_.with([this] { fake_.init_result = kNvmlSuccess; });
  watch.watch("GPU-1");
  EXPECT_TRUE(await_watched(1));
}

TEST_F(DeviceWatchTest, OneThatDoesNotAnswerAfterAQuarantineIsAskedForAllOthersLater) {
  DeviceWatch watch(api_);
  for (const char* uuid : {"GPU-1", "GPU-2", "GPU-3"}) watch.watch(uuid);
  ASSERT_TRUE(await_watched(3));
  fake_.with([this] { fake_.init_result = 999; });
  watch.keep({"GPU-2", "GPU-3"});
  ASSERT_TRUE(fake_.await([this] { return fake_.starts == 2 && fake_.started == 0; }));
  fake_.with([this] { fake_.init_result = kNvmlSuccess; });
  watch.watch("GPU-2");  // its worker starts again
  EXPECT_TRUE(await_watched(5)) << "GPU-3, whose worker lives, is not watched any more";
}

}  // namespace
}  // namespace plimsoll
