#include "daemon/device_watch.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/base/clock.h"

namespace plimsoll {
namespace {

// How soon a word of the daemon is heard, while events are waited for.
// A rank that has died starts again after no less than 80 ms: by then it is to be known.
constexpr milliseconds kTurn{25};
constexpr Duration kEndTime = seconds(1);
constexpr std::size_t kFaultsMax = 1024;

}  // namespace

struct DeviceWatch::Shared {
  const char* library = nullptr;
  const NvmlApi* api = nullptr;  // instead of the library's
  UniqueFd news;
  std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex:
  std::vector<std::string> wanted;    // all that are to be watched
  std::vector<std::string> to_watch;  // from here on, also once more
  bool is_changed = false;            // some are not wanted any more
  bool is_to_examine = false;
  bool is_to_end = false;
  bool has_ended = false;
  std::vector<DeviceFault> faults;
  std::thread thread;  // of the owner's alone
};

DeviceWatch::DeviceWatch(const char* library) : library_(library) {}

DeviceWatch::DeviceWatch(const NvmlApi& api) : api_(&api) {}

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
    auto made = std::make_unique<Shared>();
    made->library = library_;
    made->api = api_;
    made->news.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!made->news) return;  // the next start of a worker tries again
    try {
      made->thread = std::thread([&shared = *made] { run(shared); });
    } catch (const std::system_error&) {
      return;
    }
    shared_ = std::move(made);
  }
  const std::lock_guard lock(shared_->mutex);
  if (shared_->has_ended) return;
  if (std::ranges::find(shared_->wanted, uuid) == shared_->wanted.end()) {
    shared_->wanted.push_back(uuid);
  }
  shared_->to_watch.push_back(uuid);
  shared_->changed.notify_all();
}

void DeviceWatch::keep(const std::vector<std::string>& uuids) {
  if (!shared_) return;
  const std::lock_guard lock(shared_->mutex);
  const auto is_over = [&uuids](const std::string& uuid) {
    return std::ranges::find(uuids, uuid) == uuids.end();
  };
  if (std::erase_if(shared_->wanted, is_over) == 0) return;
  std::erase_if(shared_->to_watch, is_over);
  shared_->is_changed = true;
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

// What the thread does between two looks at what is asked of it.
class DeviceWatch::Turns {
 public:
  struct Wanted {
    std::vector<std::string> all;
    std::vector<std::string> anew;
    bool is_changed = false;
    bool is_to_examine = false;
  };
  explicit Turns(const NvmlApi& api) : api_(api) {}

  // The driver tells by itself only while it is asked.
  bool has_events() const { return health_ && health_->has_events(); }

  std::vector<DeviceFault> turn(Wanted wanted) {
    std::vector<DeviceFault> faults;
    if (health_ && wanted.is_to_examine) faults = health_->examine();
    if (wanted.is_changed) {
      // What came before is not told again.
      if (has_events()) {
        std::ranges::move(health_->wait(milliseconds(0)), std::back_inserter(faults));
      }
      // Of one device alone it does not let go.
      health_.reset();
      wanted.anew = wanted.all;
    }
    if (!health_ && !wanted.anew.empty()) {
      // A driver that does not answer now is asked again with the next worker that starts, and for
      // all.
      wanted.anew = std::move(wanted.all);
      if (Result<DeviceHealth> started = DeviceHealth::start(api_)) {
        health_.emplace(std::move(*started));
      }
    }
    for (const std::string& uuid : wanted.anew) {
      if (health_) health_->watch(uuid);
    }
    if (has_events()) std::ranges::move(health_->wait(kTurn), std::back_inserter(faults));
    return faults;
  }

 private:
  const NvmlApi& api_;
  std::optional<DeviceHealth> health_;
};

// In the thread, to its end. Without a driver it ends at once: planning has said so.
void DeviceWatch::run(Shared& shared) {
  const auto end = [&shared] {
    const std::lock_guard lock(shared.mutex);
    shared.has_ended = true;
    shared.changed.notify_all();
  };
  std::optional<NvmlLibrary> library;
  if (shared.api == nullptr) {
    Result<NvmlLibrary> opened = NvmlLibrary::open(shared.library);
    if (!opened) return end();
    library.emplace(std::move(*opened));
  }
  {
    Turns turns(library ? library->api() : *shared.api);
    std::unique_lock lock(shared.mutex);
    while (!shared.is_to_end) {
      Turns::Wanted wanted{.all = shared.wanted,
                           .anew = std::exchange(shared.to_watch, {}),
                           .is_changed = std::exchange(shared.is_changed, false),
                           .is_to_examine = std::exchange(shared.is_to_examine, false)};
      lock.unlock();
      std::vector<DeviceFault> faults = turns.turn(std::move(wanted));
      lock.lock();
      if (!faults.empty() && shared.faults.size() < kFaultsMax) {
        std::ranges::move(faults, std::back_inserter(shared.faults));
        const std::uint64_t one = 1;
        (void)!::write(shared.news.get(), &one, sizeof one);  // full: it is readable anyway
      }
      if (turns.has_events()) continue;
      shared.changed.wait(lock, [&shared] {
        return shared.is_to_end || shared.is_to_examine || shared.is_changed ||
               !shared.to_watch.empty();
      });
    }
  }
  end();
}

}  // namespace plimsoll
