// ReplicaSegment: layout of the memory that the ranks of one replica share, and its abort word.
//
// The daemon creates and initialises one (in a SharedBlock), passes its descriptor to every rank
// and aborts it when a rank dies; the ranks run their collectives (worker/collective) and their
// step ring (worker/schedule) in it. Segments are used once: after an abort, a new one is made.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <pthread.h>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/base/units.h"

namespace plimsoll {

constexpr int kReplicaRanksMax = 64;
constexpr std::int64_t kSlotFloatsDefault = 64 * 1024;
constexpr Bytes kStepRingBytesDefault = kMiB;

struct ReplicaSegmentShape {
  int ranks = 1;
  std::int64_t slot_floats = kSlotFloatsDefault;  // of one message; longer ones go in chunks
  Bytes ring_bytes = kStepRingBytesDefault;       // of queued steps, from rank 0 to the others
  std::uint64_t generation = 0;
};

enum class OpKind : std::uint32_t {
  none = 0,
  all_reduce_add = 1,
  gather = 2,
  barrier = 3,
  reduce_share = 4,  // all_reduce_add in two rounds: the first
  take_shares = 5,   // the second
};

// What a rank says about the round that it has joined, so that peers can see divergence.
struct RoundOp {
  OpKind kind = OpKind::none;
  std::uint32_t chunk = 0;
  std::int64_t rows = 0, cols = 0;
};
std::string describe_op(const RoundOp& op);  // "all_reduce_add [4, 512] chunk 0"

// What a rank is doing. A step that has a row of any prompt is a prefill.
enum class Activity : std::uint32_t { none, loading, warming, idle, prefill, decode };
const char* activity_name(Activity activity);

// One rank's counters. A counter and the count of its sleepers share a line; waiters sleep on the
// counter. Counters wrap: compare by signed difference.
struct alignas(128) RankLine {
  std::atomic<std::uint32_t> round;  // collective rounds that this rank has joined
  std::atomic<std::uint32_t> round_sleepers;
  RoundOp ops[2];                                // of round r at [r & 1]; written before `round`
  alignas(64) std::atomic<std::uint32_t> taken;  // steps that this rank has taken from the ring
  std::atomic<std::uint32_t> taken_sleepers;
  std::atomic<std::uint64_t> taken_bytes;
  std::atomic<std::uint32_t> joined;  // not 0: a process runs, or ran, as this rank
  // For whoever finds the rank dead or stuck.
  alignas(64) std::atomic<std::uint32_t> steps;  // begun since start
  std::atomic<Activity> activity;
  // By the rank's crash handler.
  std::atomic<std::int32_t> crash_signal;  // 0: none
  std::atomic<std::uint64_t> crash_address;
  // Held by the rank for as long as its process lives: at the end of a process the kernel gives its
  // robust mutexes up long before it has taken its memory apart and tells the parent.
  alignas(64) pthread_mutex_t life;
  std::atomic<std::uint32_t> is_held;
};

// Where a rank is, or was when it died.
struct RankMark {
  std::uint32_t round = 0;
  RoundOp op;  // of that round
  std::uint32_t steps = 0;
  Activity activity = Activity::none;
  std::int32_t crash_signal = 0;
  std::uint64_t crash_address = 0;
};
// "in step 17 (decode), collective 530: all_reduce_add [4, 512] chunk 0"; "" where nothing is
// known.
std::string describe_mark(const RankMark& mark);

struct alignas(128) RingLine {
  std::atomic<std::uint32_t> published;  // steps that rank 0 has put into the ring
  std::atomic<std::uint32_t> published_sleepers;
};

// A view of an initialised segment; owns nothing.
class ReplicaSegment {
 public:
  // Errors: the memory is not a segment of this version, or is shorter than its header says.
  static Result<ReplicaSegment> attach(std::span<std::byte> memory);

  int ranks() const { return shape_.ranks; }
  std::int64_t slot_floats() const { return shape_.slot_floats; }
  std::uint64_t generation() const { return shape_.generation; }

  RankLine& line(int rank) const;
  RankMark mark(int rank) const;
  // From here on the death of the calling thread, which lives as long as its process, is seen by
  // those who wait for it. Errors: it is held, or the kernel does not have robust mutexes.
  Status hold_life(int rank) const;
  bool is_life_held(int rank) const;
  // REQUIRES: it was held. Whether it is not any more.
  bool wait_for_death(int rank, Duration timeout) const;
  RingLine& ring() const;
  std::span<std::byte> ring_memory() const;
  // The slot into which a rank writes in rounds of that parity (round & 1).
  std::span<float> slot(int rank, std::uint32_t round) const;

  bool aborted() const;
  // For who cannot call: 0 for as long as nobody has begun to abort.
  const std::atomic<std::uint32_t>& abort_word() const;
  std::string abort_reason() const;  // "" when not aborted
  // Ends the group's work: every call of every rank fails with this reason from now on, and
  // sleepers wake. Any process that maps the segment may call, from a signal handler too; the first
  // reason is kept. Takes at most about 20 ms, even when another process died in the middle of its
  // abort.
  void abort(std::string_view reason) const;

 private:
  ReplicaSegment(std::byte* base, ReplicaSegmentShape shape) : base_(base), shape_(shape) {}

  std::byte* base_;
  ReplicaSegmentShape shape_;
};

Bytes replica_segment_bytes(const ReplicaSegmentShape& shape);
// Lays out zeroed memory of at least replica_segment_bytes(), 128-byte aligned.
Result<ReplicaSegment> init_replica_segment(std::span<std::byte> memory,
                                            const ReplicaSegmentShape& shape);

}  // namespace plimsoll
