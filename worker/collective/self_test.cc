#include "worker/collective/self_test.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <fmt/format.h>

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
constexpr int kDeviceCalls = 4;  // in a row, so that what it takes to begin counts less
constexpr float kNear = 1e-5F;   // for sums of a few values of at most 1, rounded once a call

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
  Message(std::span<std::byte> memory, const Collective& collective, const Tunable& tunable,
          std::int64_t rows, const SelfTestSetup& setup)
      : setup_(setup),
        rows_(rows),
        is_exact_(tunable.is_exact()),
        calls_(setup.device && is_exact_ ? kDeviceCalls : 1) {
    const auto count = static_cast<std::size_t>(rows * setup.cols);
    mine_ = {reinterpret_cast<double*>(memory.data()), count};
    base_ = {reinterpret_cast<float*>(mine_.data() + count), count};
    expected_ = {base_.data() + count, count};
    arrived_ = {expected_.data() + count, count};
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int r = 0; r < collective.size(); ++r) {
        const double part = value_of(setup.seed, static_cast<std::uint64_t>(r), i);
        sum = r == 0 ? part : sum + part;
        if (r == collective.rank()) mine_[i] = part;
      }
      base_[i] = static_cast<float>(value_of(setup.seed, 63, i));
      expected_[i] = base_[i];
      for (int call = 0; call < calls_; ++call) {
        expected_[i] = static_cast<float>(sum + static_cast<double>(expected_[i]));
      }
    }
  }

  // What arrives is that of no call.
  Status refill() {
    std::ranges::copy(base_, arrived_.begin());
    if (!setup_.device) return {};
    TRY(write(std::as_bytes(mine_), sums().data));
    return write(std::as_bytes(arrived_), sum().data);
  }
  // All calls, which have ended when it returns.
  Status reduce(Collective& collective) {
    for (int call = 0; call < calls_; ++call) {
      TRY(collective.all_reduce_add(sums(), sum()));
    }
    if (!setup_.device) return {};
    TRY(setup_.device->backend->read(sum().slice_rows(0, 1), arrived_));
    return {};
  }
  // Values whose bits are others, or that are off where another order is allowed.
  Result<std::int64_t> wrong() {
    if (setup_.device) TRY(setup_.device->backend->read(sum(), arrived_));
    std::int64_t count = 0;
    for (std::size_t i = 0; i < arrived_.size(); ++i) {
      const bool is_same =
          std::bit_cast<std::uint32_t>(arrived_[i]) == std::bit_cast<std::uint32_t>(expected_[i]);
      const bool is_near = std::abs(arrived_[i] - expected_[i]) <= kNear;
      if (!is_same && (is_exact_ || !is_near)) ++count;
    }
    return count;
  }
  std::int64_t values() const { return std::ssize(arrived_); }
  Bytes bytes() const { return values() * static_cast<Bytes>(sizeof(double)); }
  int calls() const { return calls_; }

 private:
  SumsView sums() const {
    return sums_view(setup_.device ? setup_.device->partial.data : mine_.data(), rows_,
                     setup_.cols);
  }
  TensorView sum() const {
    return f32_view(setup_.device ? setup_.device->sum.f32() : arrived_.data(), rows_, setup_.cols);
  }
  Status write(std::span<const std::byte> from, void* to) const {
    return setup_.device->backend->device_memory()->write(from, static_cast<std::byte*>(to));
  }

  const SelfTestSetup& setup_;
  std::int64_t rows_;
  bool is_exact_;
  int calls_;  // NCCL, which is not, adds in place
  std::span<double> mine_;
  std::span<float> base_;
  std::span<float> expected_;
  std::span<float> arrived_;
};

Result<SharedBlock> message_memory(const SelfTestSetup& setup) {
  return SharedBlock::create("collective-test",
                             Message::bytes_for(self_test_rows(setup).back() * setup.cols));
}

// What ranks tell each other goes by another collective, where what is tested is a device's.
class Exchange {
 public:
  Exchange(Collective& collective, Tunable& tunable)
      : collective_(tunable.host() == nullptr ? collective : *tunable.host()), tunable_(tunable) {}

  Collective& collective() { return collective_; }

  // Everyone's numbers, rank by rank, the same on all: each adds its own to a matrix of zeros.
  Result<std::vector<float>> all(const std::vector<double>& own) {
    if (tunable_.host() == nullptr) {
      tunable_.use(
          table_of_one(std::string(tunable_.backend()), std::string(tunable_.algorithms()[0])));
    }
    const std::int64_t ranks = collective_.size();
    std::vector<double> mine(static_cast<std::size_t>(ranks) * own.size());
    std::ranges::copy(own, mine.begin() + collective_.rank() * std::ssize(own));
    std::vector<float> all(mine.size());
    TRY(collective_.all_reduce_add(sums_view(mine.data(), ranks, std::ssize(own)),
                                   f32_view(all.data(), ranks, std::ssize(own))));
    return all;
  }
  double worst_of(const std::vector<float>& all, std::size_t column) const {
    const std::size_t width = all.size() / static_cast<std::size_t>(collective_.size());
    double worst = 0;
    for (std::size_t at = column; at < all.size(); at += width) {
      worst = std::max(worst, static_cast<double>(all[at]));
    }
    return worst;
  }
  Result<double> worst(double own) { return worst_of(TRY(all({own})), 0); }

 private:
  Collective& collective_;
  Tunable& tunable_;
};

struct Found {
  std::vector<double> us;  // of each round
  std::int64_t wrong = 0;  // in the worst of them
  bool has_hung = false;   // on any rank
  double median() const {
    std::vector<double> sorted = us;
    std::ranges::sort(sorted);
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
};

// Whether calls of any rank were late; then all go on as if none had been.
Result<bool> settle(Tunable& tunable, Exchange& exchange) {
  if (tunable.host() == nullptr) return false;  // the collective's deadline has ended the group
  const bool is_late = TRY(tunable.has_late_calls());
  if (TRY(exchange.worst(is_late ? 1 : 0)) == 0) return false;
  TRY(tunable.forget_late_calls());
  return true;
}

// By which all would tell each other that it is wrong.
Status check_exchange(const Collective& collective, Tunable& tunable, const Message& message,
                      std::int64_t wrong) {
  if (wrong == 0 || tunable.host() != nullptr) return {};
  return internal_error(
      fmt::format("the {} collective adds up wrongly by {} on rank {}: {} of {} values at {}",
                  tunable.backend(), tunable.algorithms()[0], collective.rank(), wrong,
                  message.values(), format_bytes(message.bytes())));
}

// Algorithms take turns, so that whatever else the machine does meets them all. One that hung is
// not tried again.
Status try_size(Collective& collective, Tunable& tunable, Message& message,
                std::vector<Found>& found) {
  Exchange exchange(collective, tunable);
  const std::span<const std::string_view> algorithms = tunable.algorithms();
  const int rounds = kWarmRounds + (message.bytes() > kLong ? kRoundsLong : kRounds);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      if (found[i].has_hung) continue;
      tunable.use(table_of_one(std::string(tunable.backend()), std::string(algorithms[i])));
      TRY(message.refill());
      TRY(exchange.collective().barrier());
      const TimePoint begin = now();
      TRY(message.reduce(collective));
      const double us = to_seconds(now() - begin) * 1e6 / message.calls();
      if (TRY(settle(tunable, exchange))) {
        found[i].has_hung = true;
        continue;
      }
      found[i].wrong = std::max(found[i].wrong, TRY(message.wrong()));
      if (i == 0) TRY(check_exchange(collective, tunable, message, found[i].wrong));
      if (round >= kWarmRounds) found[i].us.push_back(us);
    }
  }
  return {};
}

// With a time limit for each call.
class LimitedCalls {
 public:
  LimitedCalls(Tunable& tunable, Duration patience) : tunable_(tunable) {
    tunable.limit_calls(patience);
  }
  LimitedCalls(const LimitedCalls&) = delete;
  LimitedCalls& operator=(const LimitedCalls&) = delete;
  ~LimitedCalls() { tunable_.limit_calls(std::nullopt); }

 private:
  Tunable& tunable_;
};

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
  const LimitedCalls limited(tunable, setup.patience);
  Exchange exchange(collective, tunable);
  std::vector<AlgorithmTest> tests;
  for (const std::string_view name : tunable.algorithms()) {
    tests.push_back({.name = std::string(name), .sizes = {}});
  }
  std::vector<bool> is_out(tests.size());
  const SharedBlock memory = TRY(message_memory(setup));
  for (const std::int64_t rows : self_test_rows(setup)) {
    Message message(memory.bytes(), collective, tunable, rows, setup);
    std::vector<Found> found(tests.size());
    for (std::size_t i = 0; i < tests.size(); ++i) found[i].has_hung = is_out[i];
    TRY(try_size(collective, tunable, message, found));
    std::vector<double> own = {to_seconds(now() - begin)};
    for (const Found& one : found) {
      own.push_back(one.median());
      own.push_back(static_cast<double>(one.wrong));
    }
    const std::vector<float> all = TRY(exchange.all(own));
    for (std::size_t i = 0; i < tests.size(); ++i) {
      if (is_out[i]) continue;
      is_out[i] = found[i].has_hung;
      const auto wrong = static_cast<std::int64_t>(exchange.worst_of(all, 2 + 2 * i));
      tests[i].sizes.push_back({.bytes = message.bytes(),
                                .state = found[i].has_hung ? TestState::hung
                                         : wrong == 0      ? TestState::right
                                                           : TestState::wrong,
                                .us = found[i].has_hung ? to_seconds(setup.patience) * 1e6
                                                        : exchange.worst_of(all, 1 + 2 * i),
                                .wrong = wrong,
                                .values = message.values()});
    }
    if (exchange.worst_of(all, 0) > to_seconds(setup.budget)) break;
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
  const LimitedCalls limited(tunable, setup.patience);
  Exchange exchange(collective, tunable);
  double wrong = 0;
  const SharedBlock memory = TRY(message_memory(setup));
  for (const std::int64_t rows : self_test_rows(setup)) {
    Message message(memory.bytes(), collective, tunable, rows, setup);
    tunable.use(table);
    TRY(message.refill());
    TRY(message.reduce(collective));
    if (TRY(settle(tunable, exchange))) return false;
    wrong += static_cast<double>(TRY(message.wrong()));
  }
  return TRY(exchange.worst(wrong)) == 0;
}

}  // namespace plimsoll
