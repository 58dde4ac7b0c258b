// IpcProtocol: how ranks add up over memory that all of them see, by stores into each other's
// buffers and flags; the same templates in CUDA kernels and in tests on the CPU's threads.
//
//   sum[i] = partial of rank 0 + partial of rank 1 + ..., then accumulate[i] + sum[i], in f64 and
//   rounded once: the same bits on every rank, whichever of the three is called.
//
// one_shot: each rank writes its partials to all, waits for theirs, and sums. two_shot: to each
// chunk's owner, who sums and writes the result to all; less is moved, and one more wait. staged:
// the same with one peer at a time to write to and another to wait for, so that between PCIe roots
// no link carries two streams.
//
// A call has an epoch, one more than the last. It writes half (epoch & 1) of its peers' buffers.
// That is free: whoever has ended call epoch - 1 has seen every peer's flag of it, which a peer
// sets only after it has ended epoch - 2, the last to use that half. So flags are compared by >=: a
// peer may be a call ahead. Grids may differ from call to call, not from rank to rank.
//
// `Team` is the threads that run one block: thread(), threads(), block(), blocks(); sync(), their
// barrier; all(ok), a barrier that says whether all are; half(epoch); put() and get(), of memory
// that a peer reads or wrote; publish(), a release store of a flag; wait(), until an acquire load
// finds it, false where it never will. Every function returns false, on all threads of the block,
// when a peer does not come; then nothing more may be called.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/ipc_layout.cuh"

namespace plimsoll::cuda {

struct IpcCall {
  const Pair* partial;    // [pairs]
  FloatPair* accumulate;  // [pairs]
  std::int64_t pairs;
  std::int64_t unit;  // pairs that one block sums; divides `pairs`
  std::uint64_t epoch;
};

struct IpcRange {
  std::int64_t begin, end;
};

DEVICE IpcFlag* ipc_flag(const IpcGroup& group, int of, int phase, int writer, int block) {
  return reinterpret_cast<IpcFlag*>(group.buffers[of]) +
         (phase * kIpcRanksMax + writer) * kIpcBlocksMax + block;
}

DEVICE unsigned char* ipc_half(const IpcGroup& group, int of, int half) {
  return group.buffers[of] + kIpcFlagBytes + half * group.half_bytes;
}

// The block's part of a number of units.
template <typename Team>
DEVICE IpcRange ipc_share(const Team& team, std::int64_t begin, std::int64_t end,
                          std::int64_t unit) {
  const std::int64_t units = (end - begin) / unit;
  return {begin + units * team.block() / team.blocks() * unit,
          begin + units * (team.block() + 1) / team.blocks() * unit};
}

template <typename Team>
DEVICE void ipc_publish_to(Team& team, const IpcGroup& group, int phase, int peer,
                           std::uint64_t epoch) {
  team.publish(&ipc_flag(group, peer, phase, group.rank, team.block())->epoch, epoch);
}

template <typename Team>
DEVICE bool ipc_wait_for(Team& team, const IpcGroup& group, int phase, int peer,
                         std::uint64_t epoch) {
  return team.wait(&ipc_flag(group, group.rank, phase, peer, team.block())->epoch, epoch, phase,
                   peer);
}

// That this block's part is there, to all peers.
template <typename Team>
DEVICE void ipc_publish(Team& team, const IpcGroup& group, int phase, std::uint64_t epoch) {
  team.sync();  // so that the flag follows what every thread has written
  for (int step = 1 + team.thread(); step < group.ranks; step += team.threads()) {
    ipc_publish_to(team, group, phase, (group.rank + step) % group.ranks, epoch);
  }
}

template <typename Team>
DEVICE bool ipc_wait(Team& team, const IpcGroup& group, int phase, std::uint64_t epoch) {
  bool came = true;
  for (int step = 1 + team.thread(); step < group.ranks; step += team.threads()) {
    came = ipc_wait_for(team, group, phase, (group.rank + step) % group.ranks, epoch) && came;
  }
  return team.all(came);
}

// In rank order; `parts` are of rank 0, `stride` pairs from rank to rank, but this one's is `own`.
template <typename Team>
DEVICE FloatPair ipc_sum(Team& team, const IpcGroup& group, const Pair* parts, std::int64_t stride,
                         const Pair& own, const FloatPair& before) {
  Pair sum = group.rank == 0 ? own : team.get(parts);
  for (int r = 1; r < group.ranks; ++r) {
    const Pair part = r == group.rank ? own : team.get(parts + r * stride);
    sum.a += part.a;
    sum.b += part.b;
  }
  return {static_cast<float>(static_cast<double>(before.a) + sum.a),
          static_cast<float>(static_cast<double>(before.b) + sum.b)};
}

template <typename Team>
DEVICE bool ipc_one_shot(Team& team, const IpcGroup& group, const IpcCall& call) {
  const int half = team.half(call.epoch);
  const IpcRange share = ipc_share(team, 0, call.pairs, call.unit);
  for (std::int64_t i = share.begin + team.thread(); i < share.end; i += team.threads()) {
    const Pair mine = call.partial[i];
    for (int step = 1; step < group.ranks; ++step) {
      const int peer = (group.rank + step) % group.ranks;
      auto* slots = reinterpret_cast<Pair*>(ipc_half(group, peer, half));
      team.put(slots + group.rank * call.pairs + i, mine);
    }
  }
  ipc_publish(team, group, 0, call.epoch);
  if (!ipc_wait(team, group, 0, call.epoch)) return false;
  const auto* slots = reinterpret_cast<const Pair*>(ipc_half(group, group.rank, half));
  for (std::int64_t i = share.begin + team.thread(); i < share.end; i += team.threads()) {
    call.accumulate[i] =
        ipc_sum(team, group, slots + i, call.pairs, call.partial[i], call.accumulate[i]);
  }
  return true;
}

// What two_shot and staged have in common: a chunk of each rank.
struct IpcChunks {
  std::int64_t pairs;  // of all
  std::int64_t chunk;

  DEVICE IpcRange of(int rank) const {
    const std::int64_t begin = rank * chunk < pairs ? rank * chunk : pairs;
    return {begin, begin + chunk < pairs ? begin + chunk : pairs};
  }
  DEVICE Pair* parts(const IpcGroup& group, int of, int half, int writer) const {
    return reinterpret_cast<Pair*>(ipc_half(group, of, half)) + writer * chunk;
  }
  DEVICE FloatPair* results(const IpcGroup& group, int of, int half, int writer) const {
    return reinterpret_cast<FloatPair*>(parts(group, of, half, group.ranks)) + writer * chunk;
  }
};

// The partials of a peer's chunk to that peer.
template <typename Team>
DEVICE void ipc_put_parts(Team& team, const IpcGroup& group, const IpcCall& call,
                          const IpcChunks& chunks, int peer) {
  const IpcRange whole = chunks.of(peer);
  const IpcRange share = ipc_share(team, whole.begin, whole.end, 1);
  Pair* to = chunks.parts(group, peer, team.half(call.epoch), group.rank);
  for (std::int64_t i = share.begin + team.thread(); i < share.end; i += team.threads()) {
    team.put(to + (i - whole.begin), call.partial[i]);
  }
}

// A peer's results to where they belong here.
template <typename Team>
DEVICE void ipc_take_results(Team& team, const IpcGroup& group, const IpcCall& call,
                             const IpcChunks& chunks, int peer) {
  const IpcRange whole = chunks.of(peer);
  const IpcRange share = ipc_share(team, whole.begin, whole.end, 1);
  const FloatPair* from = chunks.results(group, group.rank, team.half(call.epoch), peer);
  for (std::int64_t i = share.begin + team.thread(); i < share.end; i += team.threads()) {
    call.accumulate[i] = team.get(from + (i - whole.begin));
  }
}

// Results of this rank's chunk, here and to `to_all` peers; a later thread may read them only after
// a barrier.
template <typename Team>
DEVICE void ipc_sum_chunk(Team& team, const IpcGroup& group, const IpcCall& call,
                          const IpcChunks& chunks, bool to_all) {
  const int half = team.half(call.epoch);
  const IpcRange whole = chunks.of(group.rank);
  const IpcRange share = ipc_share(team, whole.begin, whole.end, 1);
  const Pair* parts = chunks.parts(group, group.rank, half, 0);
  for (std::int64_t i = share.begin + team.thread(); i < share.end; i += team.threads()) {
    const std::int64_t at = i - whole.begin;
    const FloatPair result =
        ipc_sum(team, group, parts + at, chunks.chunk, call.partial[i], call.accumulate[i]);
    call.accumulate[i] = result;
    for (int step = 1; to_all && step < group.ranks; ++step) {
      const int peer = (group.rank + step) % group.ranks;
      team.put(chunks.results(group, peer, half, group.rank) + at, result);
    }
  }
}

template <typename Team>
DEVICE bool ipc_two_shot(Team& team, const IpcGroup& group, const IpcCall& call) {
  const IpcChunks chunks{call.pairs, chunk_pairs(call.pairs, group.ranks)};
  for (int step = 1; step < group.ranks; ++step) {
    ipc_put_parts(team, group, call, chunks, (group.rank + step) % group.ranks);
  }
  ipc_publish(team, group, 0, call.epoch);
  if (!ipc_wait(team, group, 0, call.epoch)) return false;
  ipc_sum_chunk(team, group, call, chunks, true);
  ipc_publish(team, group, 1, call.epoch);
  if (!ipc_wait(team, group, 1, call.epoch)) return false;
  for (int step = 1; step < group.ranks; ++step) {
    ipc_take_results(team, group, call, chunks, (group.rank + step) % group.ranks);
  }
  return true;
}

// One stage of `phase`: what was written to `to` is made known, and `from` is waited for.
template <typename Team>
DEVICE bool ipc_stage(Team& team, const IpcGroup& group, int phase, int step, std::uint64_t epoch) {
  team.sync();
  bool came = true;
  if (team.thread() == 0) {
    ipc_publish_to(team, group, phase, (group.rank + step) % group.ranks, epoch);
    came = ipc_wait_for(team, group, phase, (group.rank - step + group.ranks) % group.ranks, epoch);
  }
  return team.all(came);
}

template <typename Team>
DEVICE bool ipc_staged(Team& team, const IpcGroup& group, const IpcCall& call) {
  const IpcChunks chunks{call.pairs, chunk_pairs(call.pairs, group.ranks)};
  for (int step = 1; step < group.ranks; ++step) {
    ipc_put_parts(team, group, call, chunks, (group.rank + step) % group.ranks);
    if (!ipc_stage(team, group, 0, step, call.epoch)) return false;
  }
  ipc_sum_chunk(team, group, call, chunks, false);
  const IpcRange whole = chunks.of(group.rank);
  const IpcRange share = ipc_share(team, whole.begin, whole.end, 1);
  for (int step = 1; step < group.ranks; ++step) {
    FloatPair* to =
        chunks.results(group, (group.rank + step) % group.ranks, team.half(call.epoch), group.rank);
    // Each thread sends what it has summed itself.
    for (std::int64_t i = share.begin + team.thread(); i < share.end; i += team.threads()) {
      team.put(to + (i - whole.begin), call.accumulate[i]);
    }
    if (!ipc_stage(team, group, 1, step, call.epoch)) return false;
    ipc_take_results(team, group, call, chunks, (group.rank - step + group.ranks) % group.ranks);
  }
  return true;
}

}  // namespace plimsoll::cuda
