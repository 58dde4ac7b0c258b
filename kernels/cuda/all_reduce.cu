// AllReduce: accumulate += the sum over ranks of partial, in rank order, in f64 and rounded once.
// What is written where and when is in ipc_protocol.cuh.
//
// Vectors of pairs of elements; a block has a contiguous part of them, a thread every blockDim'th
// pair. Partials are f64, what comes of them f32. All blocks of a launch must be resident: each
// waits for the same block of the other ranks.
//
// all_reduce_norm is one shot and then the norm that rms_norm.cu computes, with its bits: a block
// has whole tokens.
//
// A call that a peer does not come to within the deadline, or that the host aborts, says so in the
// host's memory, and all later calls of this rank do nothing.
#include "kernels/cuda/ipc_protocol.cuh"
#include "kernels/cuda/rms_norm.cuh"

namespace plimsoll::cuda {
namespace {

constexpr unsigned kSpinsPerLook = 64;  // at the host's memory and the clock

struct BlockTeam {
  const IpcGroup& group;
  std::uint32_t* has_failed;  // shared by the block

  DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
  DEVICE int threads() const { return static_cast<int>(blockDim.x); }
  DEVICE int block() const { return static_cast<int>(blockIdx.x); }
  DEVICE int blocks() const { return static_cast<int>(gridDim.x); }
  DEVICE int half(std::uint64_t epoch) const { return static_cast<int>(epoch & 1U); }
  DEVICE void sync() { __syncthreads(); }

  // Once it is set it stays; there is a sync() between this and the next wait that may set it.
  DEVICE bool all(bool ok) {
    if (!ok) dev::store_relaxed(has_failed, 1);
    __syncthreads();
    return dev::load_relaxed(has_failed) == 0;
  }

  template <typename T>
  DEVICE void put(T* to, const T& value) {
    *to = value;
  }
  template <typename T>
  DEVICE T get(const T* from) {
    return *from;
  }

  DEVICE void publish(std::uint64_t* flag, std::uint64_t epoch) { dev::store_release(flag, epoch); }

  DEVICE bool wait(const std::uint64_t* flag, std::uint64_t epoch, int phase, int peer) {
    std::uint64_t begin = 0;
    for (unsigned spins = 1;; ++spins) {
      if (dev::load_acquire(flag) >= epoch) return true;
      dev::spin_pause();
      if (spins % kSpinsPerLook != 0) continue;
      const std::uint64_t at = dev::nanoseconds();
      if (begin == 0) begin = at;
      const bool is_aborted = dev::load_relaxed(group.abort_word) != 0;
      if (!is_aborted && at - begin < group.deadline_ns) continue;
      const IpcFault fault{.kind = is_aborted ? IpcFault::aborted : IpcFault::late,
                           .phase = phase,
                           .peer = peer,
                           .epoch = epoch};
      dev::store_release(group.fault, fault.word());
      dev::store_relaxed(&group.state->has_failed, 1);
      return false;
    }
  }
};

// `call` as one of this rank's, with its epoch.
template <typename Call>
DEVICE void take_part(const IpcGroup& group, std::uint32_t* has_failed, Call call) {
  if (threadIdx.x == 0) {
    dev::store_relaxed(has_failed, dev::load_relaxed(&group.state->has_failed));
  }
  __syncthreads();
  const bool takes_part = dev::load_relaxed(has_failed) == 0;
  const std::uint64_t epoch = group.state->epoch + 1;
  __syncthreads();
  if (!takes_part) return;
  BlockTeam team{group, has_failed};
  call(team, epoch);
  __syncthreads();
  // The last block to end moves the epoch on, once all have read it.
  if (threadIdx.x != 0 || dev::add_in_turn(&group.state->arrived, 1) != gridDim.x - 1) return;
  group.state->arrived = 0;
  group.state->epoch = epoch;
}

DEVICE IpcCall call_of(const AllReduceArguments& args, std::uint64_t epoch) {
  return {.partial = reinterpret_cast<const Pair*>(args.partial),
          .accumulate = reinterpret_cast<FloatPair*>(args.accumulate),
          .pairs = args.pairs,
          .unit = 1,
          .epoch = epoch};
}

}  // namespace

KERNEL(all_reduce_one_shot, AllReduceArguments, 512) {
  SHARED(std::uint32_t, has_failed, [1]);
  take_part(args.group, has_failed, [&](BlockTeam& team, std::uint64_t epoch) {
    ipc_one_shot(team, args.group, call_of(args, epoch));
  });
}

KERNEL(all_reduce_two_shot, AllReduceArguments, 512) {
  SHARED(std::uint32_t, has_failed, [1]);
  take_part(args.group, has_failed, [&](BlockTeam& team, std::uint64_t epoch) {
    ipc_two_shot(team, args.group, call_of(args, epoch));
  });
}

KERNEL(all_reduce_staged, AllReduceArguments, 512) {
  SHARED(std::uint32_t, has_failed, [1]);
  take_part(args.group, has_failed, [&](BlockTeam& team, std::uint64_t epoch) {
    ipc_staged(team, args.group, call_of(args, epoch));
  });
}

KERNEL(all_reduce_norm, AllReduceNormArguments, 256) {
  SHARED(std::uint32_t, has_failed, [1]);
  SHARED(float, of_warp, [8]);
  take_part(args.sum.group, has_failed, [&](BlockTeam& team, std::uint64_t epoch) {
    IpcCall call = call_of(args.sum, epoch);
    call.unit = call.pairs / args.tokens;
    if (!ipc_one_shot(team, args.sum.group, call)) return;
    const IpcRange share = ipc_share(team, 0, call.pairs, call.unit);
    for (std::int64_t pair = share.begin; pair < share.end; pair += call.unit) {
      __syncthreads();  // all have summed, and read the last token's of_warp
      norm_token(args.norm, pair / call.unit, of_warp);
    }
  });
}

}  // namespace plimsoll::cuda
