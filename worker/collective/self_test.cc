#include "worker/collective/self_test.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <string>

#include "kernels/tensor.h"
#include "shared/base/shared_block.h"

namespace plimsoll {
namespace {

constexpr Bytes kMessageMax = 2 * kMiB;
constexpr std::int64_t kGrowth = 4;
constexpr int kWarmRounds = 1;
constexpr int kRounds = 9;
constexpr int kRoundsLong = 5;
constexpr Bytes kLong = 256 * kKiB;

// What a rank gives at an index: about -1 to 1, all 53 bits. SplitMix64.
double value_of(std::uint64_t seed, std::uint64_t rank, std::uint64_t index) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15 * (index * 64 + rank + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  return static_cast<double>(static_cast<std::int64_t>(x) >> 11) * 0x1p-52;
}

// One size: this rank's part, what all give together, and where it arrives. In memory that is given
// back when the tests are over, which the heap would keep.
class Message {
 public:
  static Bytes bytes_for(std::int64_t values) {
    return values * static_cast<Bytes>(sizeof(double) + 3 * sizeof(float));
  }
  // REQUIRES: `memory` has bytes_for(rows x cols), aligned for doubles, and outlives this.
  Message(std::span<std::byte> memory, int rank, int ranks, std::int64_t rows, std::int64_t cols,
          std::uint64_t seed)
      : rows_(rows), cols_(cols) {
    const auto count = static_cast<std::size_t>(rows * cols);
    mine_ = {reinterpret_cast<double*>(memory.data()), count};
    base_ = {reinterpret_cast<float*>(mine_.data() + count), count};
    expected_ = {base_.data() + count, count};
    arrived_ = {expected_.data() + count, count};
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int r = 0; r < ranks; ++r) {
        const double part = value_of(seed, static_cast<std::uint64_t>(r), i);
        sum = r == 0 ? part : sum + part;
        if (r == rank) mine_[i] = part;
      }
      base_[i] = static_cast<float>(value_of(seed, 63, i));
      expected_[i] = static_cast<float>(sum + static_cast<double>(base_[i]));
    }
  }

  void refill() { std::ranges::copy(base_, arrived_.begin()); }
  Status reduce(Collective& collective) {
    return collective.all_reduce_add(sums_view(mine_.data(), rows_, cols_),
                                     f32_view(arrived_.data(), rows_, cols_));
  }
  // Values whose bits are others.
  std::int64_t wrong() const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < arrived_.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(arrived_[i]) != std::bit_cast<std::uint32_t>(expected_[i])) {
        ++count;
      }
    }
    return count;
  }
  std::int64_t values() const { return std::ssize(arrived_); }
  Bytes bytes() const { return values() * static_cast<Bytes>(sizeof(double)); }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  std::span<double> mine_;
  std::span<float> base_;
  std::span<float> expected_;
  std::span<float> arrived_;
};

Result<SharedBlock> message_memory(const SelfTestSetup& setup) {
  return SharedBlock::create("collective-test",
                             Message::bytes_for(self_test_rows(setup).back() * setup.cols));
}

// Everyone's numbers, rank by rank, the same on all: each adds its own to a matrix of zeros.
Result<std::vector<float>> exchange(Collective& collective, Tunable& tunable,
                                    const std::vector<double>& own) {
  tunable.use(table_of_one(std::string(tunable.backend()), std::string(tunable.algorithms()[0])));
  const auto ranks = static_cast<std::size_t>(collective.size());
  std::vector<double> mine(ranks * own.size());
  std::copy(own.begin(), own.end(),
            mine.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(collective.rank()) *
                                                       own.size()));
  std::vector<float> all(mine.size());
  TRY(collective.all_reduce_add(sums_view(mine.data(), collective.size(), std::ssize(own)),
                                f32_view(all.data(), collective.size(), std::ssize(own))));
  return all;
}

double worst_of(const std::vector<float>& all, std::size_t ranks, std::size_t column) {
  const std::size_t width = all.size() / ranks;
  double worst = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    worst = std::max(worst, static_cast<double>(all[rank * width + column]));
  }
  return worst;
}

struct Found {
  std::vector<double> us;  // of each round
  std::int64_t wrong = 0;  // in the worst of them
  double median() const {
    std::vector<double> sorted = us;
    std::ranges::sort(sorted);
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
};

// Algorithms take turns, so that whatever else the machine does meets them all.
Result<std::vector<Found>> try_size(Collective& collective, Tunable& tunable, Message& message) {
  const std::span<const std::string_view> algorithms = tunable.algorithms();
  std::vector<Found> found(algorithms.size());
  const int rounds = kWarmRounds + (message.bytes() > kLong ? kRoundsLong : kRounds);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      tunable.use(table_of_one(std::string(tunable.backend()), std::string(algorithms[i])));
      message.refill();
      TRY(collective.barrier());
      const TimePoint begin = now();
      TRY(message.reduce(collective));
      const double us = to_seconds(now() - begin) * 1e6;
      found[i].wrong = std::max(found[i].wrong, message.wrong());
      if (round >= kWarmRounds) found[i].us.push_back(us);
    }
  }
  return found;
}

}  // namespace

std::vector<std::int64_t> self_test_rows(const SelfTestSetup& setup) {
  const Bytes row = setup.cols * static_cast<Bytes>(sizeof(double));
  const std::int64_t most =
      std::clamp<std::int64_t>(kMessageMax / std::max<Bytes>(row, 1), 1, setup.rows_max);
  std::vector<std::int64_t> rows;
  for (std::int64_t count = 1; count < most; count *= kGrowth) rows.push_back(count);
  rows.push_back(most);
  return rows;
}

Result<std::vector<AlgorithmTest>> run_self_test(Collective& collective, Tunable& tunable,
                                                 const SelfTestSetup& setup) {
  const TimePoint begin = now();
  const auto ranks = static_cast<std::size_t>(collective.size());
  std::vector<AlgorithmTest> tests;
  for (const std::string_view name : tunable.algorithms()) {
    tests.push_back({.name = std::string(name), .sizes = {}});
  }
  const SharedBlock memory = TRY(message_memory(setup));
  for (const std::int64_t rows : self_test_rows(setup)) {
    Message message(memory.bytes(), collective.rank(), collective.size(), rows, setup.cols,
                    setup.seed);
    const std::vector<Found> found = TRY(try_size(collective, tunable, message));
    std::vector<double> own = {to_seconds(now() - begin)};
    for (const Found& one : found) {
      own.push_back(one.median());
      own.push_back(static_cast<double>(one.wrong));
    }
    const std::vector<float> all = TRY(exchange(collective, tunable, own));
    for (std::size_t i = 0; i < tests.size(); ++i) {
      const auto wrong = static_cast<std::int64_t>(worst_of(all, ranks, 2 + 2 * i));
      tests[i].sizes.push_back({.bytes = message.bytes(),
                                .state = wrong == 0 ? TestState::right : TestState::wrong,
                                .us = worst_of(all, ranks, 1 + 2 * i),
                                .wrong = wrong,
                                .values = message.values()});
    }
    if (worst_of(all, ranks, 0) > to_seconds(setup.budget)) break;
  }
  return tests;
}

bool is_table_of(const BackendTable& table, const Tunable& tunable) {
  const std::span<const std::string_view> known = tunable.algorithms();
  return table.backend == tunable.backend() &&
         std::ranges::all_of(table.rows, [&](const TableRow& row) {
           return std::ranges::find(known, row.algorithm) != known.end();
         });
}

Result<bool> verify_table(Collective& collective, Tunable& tunable, const BackendTable& table,
                          const SelfTestSetup& setup) {
  std::vector<double> wrong = {0};
  const SharedBlock memory = TRY(message_memory(setup));
  for (const std::int64_t rows : self_test_rows(setup)) {
    Message message(memory.bytes(), collective.rank(), collective.size(), rows, setup.cols,
                    setup.seed);
    tunable.use(table);
    message.refill();
    TRY(message.reduce(collective));
    wrong[0] += static_cast<double>(message.wrong());
  }
  const std::vector<float> all = TRY(exchange(collective, tunable, wrong));
  return worst_of(all, static_cast<std::size_t>(collective.size()), 0) == 0;
}

}  // namespace plimsoll
