// RandomOrder: the choices of Executor, by a seed: 0 always the first, 1 always the last.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace plimsoll::host_cuda {

class RandomOrder {
  enum class Kind { ascending, descending, random };

 public:
  explicit RandomOrder(std::uint64_t seed)
      : kind_(seed == 0   ? Kind::ascending
              : seed == 1 ? Kind::descending
                          : Kind::random),
        state_(seed * 0x9e3779b97f4a7c15ULL + 0x1234567ULL) {}

  // 0 … count - 1.
  std::vector<unsigned> order(unsigned count) {
    std::vector<unsigned> result(count);
    for (unsigned i = 0; i < count; ++i) {
      result[i] = kind_ == Kind::descending ? count - 1 - i : i;
    }
    if (kind_ != Kind::random) return result;
    for (unsigned i = count; i > 1; --i) std::swap(result[i - 1], result[next() % i]);
    return result;
  }

  // One of the bits that are set. REQUIRES: there is one.
  unsigned bit(std::uint32_t bits) {
    if (kind_ == Kind::ascending) return static_cast<unsigned>(std::countr_zero(bits));
    if (kind_ == Kind::descending) return 31U - static_cast<unsigned>(std::countl_zero(bits));
    const auto turn = static_cast<unsigned>(next() & 31U);
    const auto found =
        static_cast<unsigned>(std::countr_zero(std::rotr(bits, static_cast<int>(turn))));
    return (found + turn) & 31U;
  }

  std::size_t start(std::size_t count) {
    return kind_ == Kind::random && count > 0 ? next() % count : 0;
  }
  // Whether to leave a warp that could go on.
  bool hops() { return kind_ == Kind::random && (next() & 31U) == 0; }
  // Whether the last of a warp to arrive goes on behind the others.
  bool last_queues() { return kind_ != Kind::random || (next() & 3U) == 0; }

  // For its lifetime, every choice is random.
  class Fair {
   public:
    explicit Fair(RandomOrder& order) : order_(order), kind_(order.kind_) {
      order.kind_ = Kind::random;
    }
    ~Fair() { order_.kind_ = kind_; }
    Fair(const Fair&) = delete;
    Fair& operator=(const Fair&) = delete;

   private:
    RandomOrder& order_;
    Kind kind_;
  };

 private:
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30U) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27U) * 0x94d049bb133111ebULL;
    return z ^ z >> 31U;
  }

  Kind kind_;
  std::uint64_t state_;
};

}  // namespace plimsoll::host_cuda
