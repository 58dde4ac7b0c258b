#include "daemon/death_watch.h"

#include <cstdint>

#include <unistd.h>

namespace plimsoll {
namespace {

// How long the destructor may wait for a rank that lives.
constexpr Duration kLookEvery = milliseconds(200);

}  // namespace

DeathWatch::DeathWatch(ReplicaSegment segment, int rank, int event_fd)
    : thread_([this, segment, rank, event_fd] {
        while (!segment.wait_for_death(rank, kLookEvery)) {
          if (is_unwanted_.load()) return;
        }
        is_over_.store(true, std::memory_order_release);
        const std::uint64_t one = 1;
        (void)!::write(event_fd, &one, sizeof one);  // its counter cannot be full
      }) {}

DeathWatch::~DeathWatch() {
  is_unwanted_.store(true);
  thread_.join();
}

}  // namespace plimsoll
