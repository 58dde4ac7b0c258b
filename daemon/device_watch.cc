#include "daemon/device_watch.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/base/clock.h"

namespace plimsoll {
namespace {

// How soon a word of the daemon is heard, while events are waited for.
constexpr milliseconds kTurn{100};
constexpr Duration kEndTime = seconds(1);
constexpr std::size_t kFaultsMax = 1024;

}  // namespace

struct DeviceWatch::Shared {
  const char* library = nullptr;
  UniqueFd news;
  std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex:
  std::vector<std::string> to_watch;
  bool is_to_examine = false;
  bool is_to_end = false;
  bool has_ended = false;
  std::vector<DeviceFault> faults;
  std::thread thread;  // of the owner's alone
};

DeviceWatch::DeviceWatch(const char* library) : library_(library) {}

DeviceWatch::~DeviceWatch() {
  if (!shared_) return;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->is_to_end = true;
    shared_->changed.notify_all();
    if (shared_->changed.wait_for(lock, kEndTime, [this] { return shared_->has_ended; })) {
      lock.unlock();
      shared_->thread.join();
      return;
    }
  }
  // It is stuck in the driver, and so it keeps what it uses until the process ends.
  shared_->thread.detach();
  (void)shared_.release();
}

void DeviceWatch::watch(const std::string& uuid) {
  if (uuid.empty()) return;
  if (!shared_) {
    shared_ = std::make_unique<Shared>();
    shared_->library = library_;
    shared_->news.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    shared_->to_watch.push_back(uuid);
    Shared& shared = *shared_;
    shared_->thread = std::thread([&shared] { run(shared); });
    return;
  }
  const std::lock_guard lock(shared_->mutex);
  if (shared_->has_ended) return;
  shared_->to_watch.push_back(uuid);
  shared_->changed.notify_all();
}

void DeviceWatch::examine() {
  if (!shared_) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->is_to_examine = true;
  shared_->changed.notify_all();
}

int DeviceWatch::fd() const { return shared_ ? shared_->news.get() : -1; }

std::vector<DeviceFault> DeviceWatch::take() {
  if (!shared_) return {};
  std::uint64_t count = 0;
  if (::read(shared_->news.get(), &count, sizeof count) <= 0) return {};
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->faults, {});
}

// In the thread, to its end. Without a driver it ends at once: planning has said so.
void DeviceWatch::run(Shared& shared) {
  const auto end = [&shared] {
    const std::lock_guard lock(shared.mutex);
    shared.has_ended = true;
    shared.changed.notify_all();
  };
  const Result<NvmlLibrary> library = NvmlLibrary::open(shared.library);
  if (!library) return end();
  {
    Result<DeviceHealth> health = DeviceHealth::start(library->api());
    std::unique_lock lock(shared.mutex);
    while (health && !shared.is_to_end) {
      const std::vector<std::string> to_watch = std::exchange(shared.to_watch, {});
      const bool is_to_examine = std::exchange(shared.is_to_examine, false);
      lock.unlock();
      for (const std::string& uuid : to_watch) health->watch(uuid);
      std::vector<DeviceFault> faults;
      if (is_to_examine) faults = health->examine();
      if (health->has_events()) std::ranges::copy(health->wait(kTurn), std::back_inserter(faults));
      lock.lock();
      if (!faults.empty() && shared.faults.size() < kFaultsMax) {
        std::ranges::move(faults, std::back_inserter(shared.faults));
        const std::uint64_t one = 1;
        (void)!::write(shared.news.get(), &one, sizeof one);  // full: it is readable anyway
      }
      if (health->has_events()) continue;
      shared.changed.wait(lock, [&shared] {
        return shared.is_to_end || shared.is_to_examine || !shared.to_watch.empty();
      });
    }
  }
  end();
}

}  // namespace plimsoll
