// IpcRanks: ranks of a test that add up over each other's buffers, by the templates of the kernels.
//
// As processes (release) memory is weaker than any CPU's: what a rank writes for its peers lies in
// a store buffer, in whose order it leaves at random, and what it has read stays in a cache, until
// a release or an acquire; so a protocol that lacks one adds up wrong numbers on x86 too. As
// threads under ThreadSanitizer memory is what it is, and what lacks an order is a race.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include <immintrin.h>

#include "kernels/cuda/ipc_protocol.cuh"
#include "shared/base/clock.h"
#include "shared/base/futex.h"

namespace plimsoll::cuda {

// What is left out of a protocol.
enum class Lacks { nothing, release, acquire, second_half };

// What ranks share beside their buffers.
struct IpcRun {
  std::atomic<std::uint32_t> abort_word;
  std::atomic<std::uint32_t> wrong;    // calls whose results were
  std::atomic<std::uint32_t> expired;  // waits
};

struct IpcTeamSetup {
  std::uint64_t seed = 0;
  std::uint64_t stall_every = 512;  // of what a rank does with its buffers; 0: never
  Duration deadline = seconds(20);
};

// The one thread of a block; blocks follow each other.
template <Lacks kLacks>
class RankTeam {
 public:
  RankTeam(const IpcGroup& group, IpcRun& run, const IpcTeamSetup& setup)
      : group_(group), run_(run), setup_(setup), random_(setup.seed) {
    cache_.resize(static_cast<std::size_t>(ipc_buffer_bytes(group.half_bytes) / 8));
  }

  void set_block(int block, int blocks) {
    block_ = block;
    blocks_ = blocks;
  }
  int thread() const { return 0; }
  int threads() const { return 1; }
  int block() const { return block_; }
  int blocks() const { return blocks_; }
  void sync() {}
  bool all(bool ok) { return ok; }
  int half(std::uint64_t epoch) const {
    return kLacks == Lacks::second_half ? 0 : static_cast<int>(epoch & 1U);
  }

  template <typename T>
  void put(T* to, const T& value) {
    stall();
#if defined(__SANITIZE_THREAD__)
    *to = value;
#else
    if (count_ == stores_.size()) drain_one();
    Store& store = stores_[count_++];
    store = {to, sizeof value, {}};
    std::memcpy(store.value.data(), &value, sizeof value);
    if (random_() % 4 == 0) drain_one();
#endif
  }

  template <typename T>
  T get(const T* from) {
    stall();
#if defined(__SANITIZE_THREAD__)
    return *from;
#else
    const auto at = static_cast<std::size_t>(reinterpret_cast<const unsigned char*>(from) -
                                             group_.buffers[group_.rank]);
    Cached& cached = cache_[at / 8];
    if (cached.acquires != acquires_ || cached.bytes != sizeof(T)) {
      cached.acquires = acquires_;
      cached.bytes = sizeof(T);
      std::memcpy(cached.value.data(), from, sizeof(T));
    }
    T value;
    std::memcpy(&value, cached.value.data(), sizeof value);
    return value;
#endif
  }

  void publish(std::uint64_t* flag, std::uint64_t epoch) {
    stall();
    if (kLacks == Lacks::release) {
      __atomic_store_n(flag, epoch, __ATOMIC_RELAXED);
    } else {
      while (count_ > 0) drain_one();
      __atomic_store_n(flag, epoch, __ATOMIC_RELEASE);
    }
    futex_wake_all(low_word(flag));
  }

  bool wait(const std::uint64_t* flag, std::uint64_t epoch, int, int) {
    constexpr int kOrder = kLacks == Lacks::acquire ? __ATOMIC_RELAXED : __ATOMIC_ACQUIRE;
    const TimePoint begin = now();
    while (true) {
      const std::uint64_t found = __atomic_load_n(flag, kOrder);
      if (found >= epoch) break;
      if (run_.abort_word.load() != 0) return false;
      if (count_ > 0) {  // nothing stays in a store buffer for ever
        drain_one();
        continue;
      }
      // There are more ranks than cores: to spin is to wait for a turn.
      futex_wait(low_word(flag), static_cast<std::uint32_t>(found), milliseconds(2));
      if (now() - begin > setup_.deadline) {
        run_.expired.fetch_add(1);
        run_.abort_word.store(1);
        return false;
      }
    }
    if (kLacks != Lacks::acquire) ++acquires_;
    stall();
    return true;
  }

 private:
  static std::atomic<std::uint32_t>& low_word(const std::uint64_t* flag) {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(const_cast<std::uint64_t*>(flag));
  }

  struct Store {
    void* to = nullptr;
    std::size_t bytes = 0;
    std::array<std::byte, 16> value = {};
  };
  struct Cached {
    std::uint64_t acquires = 0;  // that there had been
    std::size_t bytes = 0;
    std::array<std::byte, 16> value = {};
  };

  void drain_one() {
    const std::size_t which = random_() % count_;
    std::memcpy(stores_[which].to, stores_[which].value.data(), stores_[which].bytes);
    stores_[which] = stores_[--count_];
  }

  // Now and then, at any point, long enough for a peer to go a call further.
  void stall() {
    if (setup_.stall_every == 0 || random_() % setup_.stall_every != 0) return;
    if (random_() % 32 == 0) std::this_thread::yield();
    for (std::uint64_t turns = random_() % 1024; turns > 0; --turns) _mm_pause();
  }

  const IpcGroup& group_;
  IpcRun& run_;
  IpcTeamSetup setup_;
  std::minstd_rand random_;
  int block_ = 0;
  int blocks_ = 1;
  std::array<Store, 24> stores_ = {};
  std::size_t count_ = 0;
  std::vector<Cached> cache_;
  std::uint64_t acquires_ = 1;
};

// A number that follows from the call and who brings it, with digits that a float does not hold.
inline double brought(std::uint64_t round, int rank, std::int64_t element) {
  std::uint64_t mix = round * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(rank) * 0x51ed2701U +
                      static_cast<std::uint64_t>(element);
  mix ^= mix >> 31U;
  mix *= 0xbf58476d1ce4e5b9U;
  return static_cast<double>(mix >> 40U) / 3;
}

struct IpcRounds {
  std::uint64_t first = 1;
  std::uint64_t rounds = 0;
  std::int64_t pairs_max = 24;
  int blocks_max = 3;
  std::vector<ReduceKind> kinds;  // taken in turn, in an order of the round
  IpcTeamSetup setup;
};

// One rank of a run, from its first call on. Ends early where a result is wrong or a peer gone.
template <Lacks kLacks>
void run_rank(const IpcGroup& group, IpcRun& run, const IpcRounds& rounds) {
  IpcTeamSetup setup = rounds.setup;
  setup.seed = setup.seed * 64 + static_cast<std::uint64_t>(group.rank) + 1;
  RankTeam<kLacks> team(group, run, setup);
  std::vector<Pair> partial(static_cast<std::size_t>(rounds.pairs_max));
  std::vector<FloatPair> accumulate(partial.size());
  for (std::uint64_t epoch = rounds.first; epoch < rounds.first + rounds.rounds; ++epoch) {
    std::minstd_rand shape(static_cast<std::uint32_t>(epoch + rounds.setup.seed * 7919));
    const auto pairs =
        1 + static_cast<std::int64_t>(shape() % static_cast<std::uint64_t>(rounds.pairs_max));
    const ReduceKind kind = rounds.kinds[shape() % rounds.kinds.size()];
    const int blocks =
        1 + static_cast<int>(shape() % static_cast<std::uint64_t>(rounds.blocks_max));
    for (std::int64_t i = 0; i < pairs; ++i) {
      partial[static_cast<std::size_t>(i)] = {brought(epoch, group.rank, 2 * i),
                                              brought(epoch, group.rank, 2 * i + 1)};
      accumulate[static_cast<std::size_t>(i)] = {1, static_cast<float>(epoch % 1024)};
    }
    const IpcCall call{.partial = partial.data(),
                       .accumulate = accumulate.data(),
                       .pairs = pairs,
                       .unit = 1,
                       .epoch = epoch};
    for (int block = 0; block < blocks; ++block) {
      team.set_block(block, blocks);
      const bool ended = kind == ReduceKind::one_shot   ? ipc_one_shot(team, group, call)
                         : kind == ReduceKind::two_shot ? ipc_two_shot(team, group, call)
                                                        : ipc_staged(team, group, call);
      if (!ended) return;
    }
    for (std::int64_t element = 0; element < 2 * pairs; ++element) {
      double sum = brought(epoch, 0, element);
      for (int r = 1; r < group.ranks; ++r) sum += brought(epoch, r, element);
      const bool is_first = element % 2 == 0;
      const double before = is_first ? 1 : static_cast<double>(epoch % 1024);
      const FloatPair& got = accumulate[static_cast<std::size_t>(element / 2)];
      if ((is_first ? got.a : got.b) == static_cast<float>(before + sum)) continue;
      run.wrong.fetch_add(1);
      run.abort_word.store(1);
      return;
    }
  }
}

}  // namespace plimsoll::cuda
