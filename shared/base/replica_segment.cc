#include "shared/base/replica_segment.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "shared/base/futex.h"

namespace plimsoll {
namespace {

constexpr std::uint64_t kMagic = 0x4C4F534D494C50ULL;  // "PLIMSOL"
constexpr std::uint32_t kVersion = 2;
constexpr Bytes kRingBytesMin = 1024;
constexpr Bytes kSegmentAlign = 128;

// Who aborts takes the reason's place first, so that whoever sees the abort can read its reason.
enum AbortState : std::uint32_t {
  running = 0,
  writing_reason = 1,  // still counts as running
  aborted_with_reason = 2,
  aborted_without_reason = 3,  // who wrote the reason did not get to its end
};
constexpr Duration kReasonTimeout = milliseconds(20);  // to copy half a kilobyte

struct alignas(kSegmentAlign) Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t ranks;
  std::int64_t slot_floats;
  Bytes ring_bytes;
  std::uint64_t generation;
  alignas(64) std::atomic<std::uint32_t> abort_state;
  std::uint32_t reason_bytes;
  char reason[448];
};

Header* header(std::byte* base) { return reinterpret_cast<Header*>(base); }

Bytes slot_bytes(std::int64_t floats) {
  return round_up(floats * static_cast<Bytes>(sizeof(float)), kSegmentAlign);
}

// The parts follow each other: header, ring line, rank lines, slots, ring.
constexpr Bytes kRingLineAt = sizeof(Header);
constexpr Bytes kRankLinesAt = kRingLineAt + static_cast<Bytes>(sizeof(RingLine));

Bytes slots_at(const ReplicaSegmentShape& shape) {
  return kRankLinesAt + shape.ranks * static_cast<Bytes>(sizeof(RankLine));
}
Bytes ring_at(const ReplicaSegmentShape& shape) {
  return slots_at(shape) + 2 * shape.ranks * slot_bytes(shape.slot_floats);
}

Status check_shape(const ReplicaSegmentShape& shape) {
  if (shape.ranks < 1 || shape.ranks > kReplicaRanksMax) {
    return invalid(fmt::format("replica segment: {} ranks; 1 to {} are possible", shape.ranks,
                               kReplicaRanksMax));
  }
  if (shape.slot_floats < 2 || shape.slot_floats > kGiB) {  // sums are exchanged in f64
    return invalid(fmt::format("replica segment: {} floats a slot; 2 to {} are possible",
                               shape.slot_floats, kGiB));
  }
  if (shape.ring_bytes < kRingBytesMin || shape.ring_bytes > kGiB) {
    return invalid(fmt::format("replica segment: a ring of {} bytes; {} to {} are possible",
                               shape.ring_bytes, kRingBytesMin, kGiB));
  }
  return {};
}

}  // namespace

std::string describe_op(const RoundOp& op) {
  switch (op.kind) {
    case OpKind::all_reduce_add:
      return fmt::format("all_reduce_add [{}, {}] chunk {}", op.rows, op.cols, op.chunk);
    case OpKind::gather:
      return fmt::format("gather [{}, {}] chunk {}", op.rows, op.cols, op.chunk);
    case OpKind::barrier:
      return "barrier";
    case OpKind::reduce_share:
      return fmt::format("all_reduce_add [{}, {}] chunk {}, shares", op.rows, op.cols, op.chunk);
    case OpKind::take_shares:
      return fmt::format("all_reduce_add [{}, {}] chunk {}, taking shares", op.rows, op.cols,
                         op.chunk);
    case OpKind::none:
      break;
  }
  return fmt::format("operation {}", static_cast<std::uint32_t>(op.kind));
}

const char* activity_name(Activity activity) {
  switch (activity) {
    case Activity::none:
      break;
    case Activity::loading:
      return "loading";
    case Activity::warming:
      return "warming";
    case Activity::idle:
      return "idle";
    case Activity::prefill:
      return "prefill";
    case Activity::decode:
      return "decode";
  }
  return "";
}

std::string describe_mark(const RankMark& mark) {
  std::string text;
  switch (mark.activity) {
    case Activity::none:
      break;
    case Activity::loading:
    case Activity::warming:
      text = fmt::format("while {}", activity_name(mark.activity));
      break;
    case Activity::idle:
      text = fmt::format("after step {} (idle)", mark.steps);
      break;
    case Activity::prefill:
    case Activity::decode:
      text = fmt::format("in step {} ({})", mark.steps, activity_name(mark.activity));
      break;
  }
  if (mark.op.kind != OpKind::none) {
    text += fmt::format("{}collective {}: {}", text.empty() ? "" : ", ", mark.round,
                        describe_op(mark.op));
  }
  return text;
}

Bytes replica_segment_bytes(const ReplicaSegmentShape& shape) {
  return ring_at(shape) + round_up(shape.ring_bytes, kSegmentAlign);
}

Result<ReplicaSegment> init_replica_segment(std::span<std::byte> memory,
                                            const ReplicaSegmentShape& shape) {
  TRY(check_shape(shape));
  if (static_cast<Bytes>(memory.size()) < replica_segment_bytes(shape)) {
    return invalid(fmt::format("replica segment: {} ranks need {} bytes, the memory has {}",
                               shape.ranks, replica_segment_bytes(shape), memory.size()));
  }
  CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % kSegmentAlign == 0);
  auto* head = new (memory.data()) Header{};
  new (memory.data() + kRingLineAt) RingLine{};
  pthread_mutexattr_t shared_and_robust;
  ::pthread_mutexattr_init(&shared_and_robust);  // neither can fail on Linux
  ::pthread_mutexattr_setpshared(&shared_and_robust, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&shared_and_robust, PTHREAD_MUTEX_ROBUST);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::byte* at = memory.data() + kRankLinesAt + rank * static_cast<Bytes>(sizeof(RankLine));
    ::pthread_mutex_init(&(new (at) RankLine{})->life, &shared_and_robust);
  }
  head->magic = kMagic;
  head->version = kVersion;
  head->ranks = shape.ranks;
  head->slot_floats = shape.slot_floats;
  head->ring_bytes = shape.ring_bytes;
  head->generation = shape.generation;
  return ReplicaSegment::attach(memory);
}

Result<ReplicaSegment> ReplicaSegment::attach(std::span<std::byte> memory) {
  if (memory.size() < sizeof(Header)) {
    return invalid(
        fmt::format("replica segment: {} bytes are less than its header", memory.size()));
  }
  const Header* head = header(memory.data());
  if (head->magic != kMagic || head->version != kVersion) {
    return invalid(fmt::format("replica segment: not one of version {} (magic {:x}, version {})",
                               kVersion, head->magic, head->version));
  }
  const ReplicaSegmentShape shape = {head->ranks, head->slot_floats, head->ring_bytes,
                                     head->generation};
  TRY(check_shape(shape));
  if (static_cast<Bytes>(memory.size()) < replica_segment_bytes(shape)) {
    return invalid(fmt::format("replica segment: its header tells of {} bytes, mapped are {}",
                               replica_segment_bytes(shape), memory.size()));
  }
  return ReplicaSegment(memory.data(), shape);
}

RankLine& ReplicaSegment::line(int rank) const {
  CHECK(rank >= 0 && rank < shape_.ranks);
  return reinterpret_cast<RankLine*>(base_ + kRankLinesAt)[rank];
}

RankMark ReplicaSegment::mark(int rank) const {
  const RankLine& from = line(rank);
  RankMark mark;
  mark.round = from.round.load(std::memory_order_acquire);
  mark.op = from.ops[mark.round & 1U];
  mark.steps = from.steps.load();
  mark.activity = from.activity.load();
  mark.crash_signal = from.crash_signal.load();
  mark.crash_address = from.crash_address.load();
  return mark;
}

Status ReplicaSegment::hold_life(int rank) const {
  RankLine& own = line(rank);
  const int failed = ::pthread_mutex_trylock(&own.life);
  if (failed != 0) {
    return internal_error(
        fmt::format("hold the life mutex of rank {}: {}", rank, std::strerror(failed)));
  }
  own.is_held.store(1);
  return {};
}

bool ReplicaSegment::is_life_held(int rank) const { return line(rank).is_held.load() != 0; }

bool ReplicaSegment::wait_for_death(int rank, Duration timeout) const {
  pthread_mutex_t& life = line(rank).life;
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  const std::int64_t end = until.tv_nsec + std::chrono::nanoseconds(timeout).count();
  until.tv_sec += end / 1'000'000'000;
  until.tv_nsec = end % 1'000'000'000;
  const int got = ::pthread_mutex_clocklock(&life, CLOCK_MONOTONIC, &until);
  if (got == ETIMEDOUT) return false;
  if (got == EOWNERDEAD) (void)::pthread_mutex_consistent(&life);
  if (got == 0 || got == EOWNERDEAD) (void)::pthread_mutex_unlock(&life);
  return true;
}

RingLine& ReplicaSegment::ring() const { return *reinterpret_cast<RingLine*>(base_ + kRingLineAt); }

std::span<std::byte> ReplicaSegment::ring_memory() const {
  return {base_ + ring_at(shape_), static_cast<std::size_t>(shape_.ring_bytes)};
}

std::span<float> ReplicaSegment::slot(int rank, std::uint32_t round) const {
  CHECK(rank >= 0 && rank < shape_.ranks);
  const Bytes index = 2 * rank + static_cast<Bytes>(round & 1U);
  std::byte* slot = base_ + slots_at(shape_) + index * slot_bytes(shape_.slot_floats);
  return {reinterpret_cast<float*>(slot), static_cast<std::size_t>(shape_.slot_floats)};
}

const std::atomic<std::uint32_t>& ReplicaSegment::abort_word() const {
  return header(base_)->abort_state;
}

bool ReplicaSegment::aborted() const {
  return header(base_)->abort_state.load(std::memory_order_acquire) >= aborted_with_reason;
}

std::string ReplicaSegment::abort_reason() const {
  const Header* head = header(base_);
  const std::uint32_t state = head->abort_state.load(std::memory_order_acquire);
  if (state < aborted_with_reason) return "";
  if (state == aborted_without_reason) return "by a process that ended before it gave its reason";
  return {head->reason, std::min<std::size_t>(head->reason_bytes, sizeof(head->reason))};
}

void ReplicaSegment::abort(std::string_view reason) const {
  Header* head = header(base_);
  std::uint32_t state = running;
  if (head->abort_state.compare_exchange_strong(state, writing_reason)) {
    head->reason_bytes =
        static_cast<std::uint32_t>(reason.copy(head->reason, sizeof(head->reason)));
    head->abort_state.store(aborted_with_reason);
    futex_wake_all(head->abort_state);
  } else {
    const TimePoint end = now() + kReasonTimeout;
    while (head->abort_state.load() == writing_reason && now() < end) {
      futex_wait(head->abort_state, writing_reason, end - now());
    }
    state = writing_reason;
    head->abort_state.compare_exchange_strong(state, aborted_without_reason);
  }
  futex_wake_all(ring().published);
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    futex_wake_all(line(rank).round);
    futex_wake_all(line(rank).taken);
  }
}

}  // namespace plimsoll
