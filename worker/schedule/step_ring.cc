// The ring holds messages one after the other, each a u32 length and its bytes, wrapping anywhere.
#include "worker/schedule/step_ring.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "shared/memory/step_message.h"
#include "worker/collective/segment_wait.h"

namespace plimsoll {
namespace {

using Length = std::uint32_t;
constexpr std::uint64_t kLengthBytes = sizeof(Length);
static_assert(kLengthBytes == kRingLengthBytes);

SegmentCounter published_counter(const ReplicaSegment& segment) {
  return {segment.ring().published, segment.ring().published_sleepers};
}
SegmentCounter taken_counter(const ReplicaSegment& segment, int rank) {
  return {segment.line(rank).taken, segment.line(rank).taken_sleepers};
}

void copy_in(std::span<std::byte> ring, std::uint64_t at, std::span<const std::byte> from) {
  const std::size_t begin = at % ring.size();
  const std::size_t first = std::min(from.size(), ring.size() - begin);
  std::copy_n(from.data(), first, ring.data() + begin);
  std::copy_n(from.data() + first, from.size() - first, ring.data());
}

void copy_out(std::span<const std::byte> ring, std::uint64_t at, std::span<std::byte> to) {
  const std::size_t begin = at % ring.size();
  const std::size_t first = std::min(to.size(), ring.size() - begin);
  std::copy_n(ring.data() + begin, first, to.data());
  std::copy_n(ring.data(), to.size() - first, to.data() + first);
}

Error aborted(const char* what, const ReplicaSegment& segment) {
  return unavailable(fmt::format("{}: the replica was aborted: {}", what, segment.abort_reason()));
}

}  // namespace

StepPublisher::StepPublisher(ReplicaSegment segment, const Options& options)
    : segment_(segment), options_(options) {}

std::uint32_t StepPublisher::published() const { return segment_.ring().published.load(); }

std::uint32_t StepPublisher::taken(int rank) const { return segment_.line(rank).taken.load(); }

Status StepPublisher::wait_for_room(std::uint64_t bytes) {
  const std::uint64_t capacity = segment_.ring_memory().size();
  for (int rank = 1; rank < segment_.ranks(); ++rank) {
    for (;;) {
      // Read before the bytes: a step taken meanwhile only makes more room than is seen here.
      const std::uint32_t steps = taken(rank);
      if (end_ + bytes - segment_.line(rank).taken_bytes.load() <= capacity) break;
      const Waited waited = wait_for(segment_, taken_counter(segment_, rank), steps + 1,
                                     {options_.spin, options_.deadline});
      if (waited == Waited::aborted) return aborted("publish a step", segment_);
      if (waited == Waited::timed_out) {
        return timed_out(fmt::format(
            "publish step {}: the ring of {} bytes is full and rank {} has taken none for {:.1f} s "
            "(it is at step {})",
            published() + 1, capacity, rank, to_seconds(options_.deadline), steps));
      }
    }
  }
  return {};
}

Status StepPublisher::publish(std::span<const std::byte> message) {
  if (segment_.aborted()) return aborted("publish a step", segment_);
  const std::span<std::byte> ring = segment_.ring_memory();
  const std::uint64_t bytes = kLengthBytes + message.size();
  if (bytes > ring.size()) {
    return invalid(fmt::format("publish a step of {} bytes: the ring holds {}", message.size(),
                               ring.size() - kLengthBytes));
  }
  TRY(wait_for_room(bytes));
  const auto length = static_cast<Length>(message.size());
  copy_in(ring, end_, std::as_bytes(std::span(&length, 1)));
  copy_in(ring, end_ + kLengthBytes, message);
  end_ += bytes;
  advance(published_counter(segment_), published() + 1);
  return {};
}

StepReceiver::StepReceiver(ReplicaSegment segment, const Options& options)
    : segment_(segment), options_(options), message_(segment.ring_memory().size()) {
  CHECK(options.rank >= 1 && options.rank < segment.ranks());
}

Result<std::optional<std::span<const std::byte>>> StepReceiver::receive(Duration timeout) {
  using Payload = std::optional<std::span<const std::byte>>;
  if (segment_.aborted()) return aborted("receive a step", segment_);
  RankLine& line = segment_.line(options_.rank);
  const std::uint32_t step = line.taken.load(std::memory_order_relaxed) + 1;
  const Waited waited =
      wait_for(segment_, published_counter(segment_), step, {options_.spin, timeout});
  if (waited == Waited::aborted) return aborted("receive a step", segment_);
  if (waited == Waited::timed_out) return Payload{};

  const std::span<const std::byte> ring = segment_.ring_memory();
  const std::uint64_t at = line.taken_bytes.load(std::memory_order_relaxed);
  Length length = 0;
  copy_out(ring, at, std::as_writable_bytes(std::span(&length, 1)));
  if (length > ring.size() - kLengthBytes) {
    return corrupt(fmt::format("receive step {}: a length of {} bytes in a ring of {}", step,
                               length, ring.size()));
  }
  const std::span<std::byte> message = std::span(message_).first(length);
  copy_out(ring, at + kLengthBytes, message);
  line.taken_bytes.store(at + kLengthBytes + length);
  advance(taken_counter(segment_, options_.rank), step);
  return Payload{message};
}

}  // namespace plimsoll
