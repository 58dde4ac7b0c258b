// Each call is one or more rounds. In round r a rank writes its part into slot r & 1, says what it
// does, and sets its round counter; then it reads its peers' slots once their counters are at r.
//
// Two slots are enough: a rank sets its counter to r only after it has read everything of round
// r - 1, and it writes for round r only after all counters are at r - 1, that is, after all have
// read round r - 2, which used the same slot.
//
// Sums go in one of two ways, with the same bits. One-shot: everybody gives all of its part and
// sums everything. Two-shot: everybody sums one share of what the others gave for it, and then
// takes the others' shares: a round more, and less to read the more ranks there are.
#include "worker/collective/shm_collective.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "worker/collective/rank_sum.h"
#include "worker/collective/segment_wait.h"
#include "worker/collective/tunable.h"

namespace plimsoll {
namespace {

bool same(const RoundOp& a, const RoundOp& b) {
  return a.kind == b.kind && a.chunk == b.chunk && a.rows == b.rows && a.cols == b.cols;
}

constexpr std::array<std::string_view, 2> kAlgorithms = {"one-shot", "two-shot"};
constexpr std::int64_t kShareUnit = 16;  // values of a cache line's neighbours

struct Share {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
// Of a chunk of `count` values.
Share share_of(int rank, int ranks, std::int64_t count) {
  const std::int64_t each = round_up(ceil_div(count, std::int64_t{ranks}), kShareUnit);
  const std::int64_t begin = std::min(count, rank * each);
  return {begin, std::min(count, begin + each)};
}

class ShmCollective : public Collective, public Tunable {
 public:
  ShmCollective(ReplicaSegment segment, const ShmCollectiveOptions& options)
      : segment_(segment), options_(options), round_(segment.line(options.rank).round.load()) {}

  int rank() const override { return options_.rank; }
  int size() const override { return segment_.ranks(); }
  std::string_view name() const override { return "shm"; }

  Status all_reduce_add(SumsView partial, TensorView accumulate) override;
  Status gather(TensorView mine, std::span<const std::int64_t> cols_of_rank,
                TensorView all) override;
  Status barrier() override { return await_peers(options_.deadline); }
  Status await_peers(Duration patience) override;
  void abort(std::string_view reason) override { segment_.abort(reason); }

  Tunable* tunable() override { return this; }
  std::string_view backend() const override { return "shm"; }
  std::span<const std::string_view> algorithms() const override { return kAlgorithms; }
  void use(const BackendTable& table) override;

 private:
  // Waits until this round's slot may be written; then `join` tells the peers that it is.
  Status open_round(const RoundOp& op);
  void join_round(const RoundOp& op);
  Status wait_for_rank(int peer, std::uint32_t round, const RoundOp& op);
  Status wait_for_peers(const RoundOp& op);
  Status check_same(int peer, const RoundOp& op);
  // `at`: where in the slot, in elements.
  template <typename View>
  void write_slot(const View& from, std::int64_t begin, std::int64_t count, std::int64_t at = 0);
  std::span<double> sums_slot(int rank) const;
  bool goes_in_two(Bytes bytes) const;
  Status reduce_at_once(RoundOp op, const SumsView& partial, std::int64_t begin, std::int64_t count,
                        const TensorView& accumulate);
  Status reduce_in_two(RoundOp op, const SumsView& partial, std::int64_t begin, std::int64_t count,
                       const TensorView& accumulate);
  void add_share(const SumsView& partial, std::int64_t begin, Share share,
                 const TensorView& accumulate);
  Status collect_chunk(const RoundOp& op, std::span<const std::int64_t> cols_of_rank,
                       const TensorView& all);
  Error aborted(const RoundOp& op) const {
    return unavailable(fmt::format("{} on rank {}: the replica was aborted: {}", describe_op(op),
                                   rank(), segment_.abort_reason()));
  }

  SegmentCounter counter(int rank) const {
    RankLine& line = segment_.line(rank);
    return {line.round, line.round_sleepers};
  }

  ReplicaSegment segment_;
  ShmCollectiveOptions options_;
  std::uint32_t round_;
  // Of the table: up to how many bytes a message goes in two rounds, or in one.
  struct Way {
    Bytes up_to;
    bool in_two;
  };
  std::vector<Way> ways_ = {{kAnySize, false}};
};

void ShmCollective::use(const BackendTable& table) {
  CHECK(!table.rows.empty());
  ways_.clear();
  for (const TableRow& row : table.rows) {
    CHECK(std::ranges::find(kAlgorithms, row.algorithm) != kAlgorithms.end());
    ways_.push_back({row.up_to, row.algorithm == kAlgorithms[1]});
  }
}

bool ShmCollective::goes_in_two(Bytes bytes) const {
  const auto way = std::ranges::find_if(ways_, [&](const Way& one) { return bytes <= one.up_to; });
  return way == ways_.end() ? ways_.back().in_two : way->in_two;
}

Status ShmCollective::wait_for_rank(int peer, std::uint32_t round, const RoundOp& op) {
  const Waited waited =
      wait_for(segment_, counter(peer), round, {options_.spin, options_.deadline});
  if (waited == Waited::reached) return {};
  if (waited == Waited::aborted) return aborted(op);
  const std::string reason =
      fmt::format("{} on rank {}: rank {} did not join round {} within {:.1f} s; it is at round {}",
                  describe_op(op), rank(), peer, round, to_seconds(options_.deadline),
                  segment_.line(peer).round.load());
  segment_.abort(reason);
  return timed_out(reason);
}

Status ShmCollective::open_round(const RoundOp& op) {
  if (segment_.aborted()) return aborted(op);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) TRY(wait_for_rank(peer, round_, op));
  }
  ++round_;
  return {};
}

void ShmCollective::join_round(const RoundOp& op) {
  segment_.line(rank()).ops[round_ & 1U] = op;
  advance(counter(rank()), round_);
}

Status ShmCollective::check_same(int peer, const RoundOp& op) {
  const RoundOp& other = segment_.line(peer).ops[round_ & 1U];
  if (same(op, other)) return {};
  segment_.abort(fmt::format(
      "in round {} rank {} calls {} but rank {} calls {}: the ranks no longer run the same steps",
      round_, rank(), describe_op(op), peer, describe_op(other)));
  return aborted(op);
}

Status ShmCollective::wait_for_peers(const RoundOp& op) {
  // Each rank begins with its successor, so that not all look at the same line at once.
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    TRY(wait_for_rank(peer, round_, op));
    TRY(check_same(peer, op));
  }
  return {};
}

template <typename View>
void ShmCollective::write_slot(const View& from, std::int64_t begin, std::int64_t count,
                               std::int64_t at) {
  auto* slot = reinterpret_cast<std::byte*>(segment_.slot(rank(), round_).data());
  for_each_run(from, begin, count, [=](const auto* data, std::int64_t run, std::int64_t length) {
    constexpr auto kSize = static_cast<Bytes>(sizeof *data);
    copy_to_slot(data, length * kSize, slot + (at + run) * kSize);
  });
}

// This round's slot as it is used by all_reduce_add.
std::span<double> ShmCollective::sums_slot(int rank) const {
  const std::span<float> slot = segment_.slot(rank, round_);
  return {reinterpret_cast<double*>(slot.data()), slot.size() / 2};
}

Status ShmCollective::all_reduce_add(SumsView partial, TensorView accumulate) {
  CHECK(partial.rows == accumulate.rows && partial.cols == accumulate.cols);
  const std::int64_t total = partial.rows * partial.cols;
  RoundOp op = {OpKind::all_reduce_add, 0, partial.rows, partial.cols};
  const std::int64_t slot = std::ssize(sums_slot(rank()));
  const bool in_two = goes_in_two(total * static_cast<Bytes>(sizeof(double)));
  for (std::int64_t begin = 0; begin < total; begin += slot, ++op.chunk) {
    const std::int64_t count = std::min(slot, total - begin);
    TRY(in_two ? reduce_in_two(op, partial, begin, count, accumulate)
               : reduce_at_once(op, partial, begin, count, accumulate));
  }
  return {};
}

Status ShmCollective::reduce_at_once(RoundOp op, const SumsView& partial, std::int64_t begin,
                                     std::int64_t count, const TensorView& accumulate) {
  TRY(open_round(op));
  write_slot(partial, begin, count);
  join_round(op);
  TRY(wait_for_peers(op));
  add_share(partial, begin, {0, count}, accumulate);
  return {};
}

Status ShmCollective::reduce_in_two(RoundOp op, const SumsView& partial, std::int64_t begin,
                                    std::int64_t count, const TensorView& accumulate) {
  const Share own = share_of(rank(), size(), count);
  op.kind = OpKind::reduce_share;
  TRY(open_round(op));
  write_slot(partial, begin, own.begin);
  write_slot(partial, begin + own.end, count - own.end, own.end);
  join_round(op);
  TRY(wait_for_peers(op));
  add_share(partial, begin, own, accumulate);
  op.kind = OpKind::take_shares;
  TRY(open_round(op));
  write_slot(accumulate, begin + own.begin, own.end - own.begin, own.begin);
  join_round(op);
  TRY(wait_for_peers(op));
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    const Share share = share_of(peer, size(), count);
    const float* slot = segment_.slot(peer, round_).data() + share.begin;
    for_each_run(accumulate, begin + share.begin, share.end - share.begin,
                 [slot](float* to, std::int64_t at, std::int64_t length) {
                   std::copy_n(slot + at, length, to);
                 });
  }
  return {};
}

// Adds everybody's values of a share of the chunk that begins there.
void ShmCollective::add_share(const SumsView& partial, std::int64_t begin, Share share,
                              const TensorView& accumulate) {
  std::array<const double*, kReplicaRanksMax> parts{};
  const auto ranks = static_cast<std::size_t>(size());
  const std::int64_t first = begin + share.begin;
  for_each_run(accumulate, first, share.end - share.begin,
               [&](float* to, std::int64_t at, std::int64_t length) {
                 // The own part is taken from where it was made: the slot may have left the cache.
                 // Its rows may be spaced otherwise, so it goes run by run too.
                 for_each_run(partial, first + at, length,
                              [&](const double* own, std::int64_t offset, std::int64_t run) {
                                for (std::size_t r = 0; r < ranks; ++r) {
                                  const int peer = static_cast<int>(r);
                                  parts[r] = peer == rank() ? own
                                                            : sums_slot(peer).data() + share.begin +
                                                                  at + offset;
                                }
                                add_in_rank_order({parts.data(), ranks}, to + offset, run);
                              });
               });
}

Status ShmCollective::gather(TensorView mine, std::span<const std::int64_t> cols_of_rank,
                             TensorView all) {
  CHECK(static_cast<int>(cols_of_rank.size()) == size());
  CHECK(mine.cols == cols_of_rank[static_cast<std::size_t>(rank())]);
  const std::int64_t cols =
      std::accumulate(cols_of_rank.begin(), cols_of_rank.end(), std::int64_t{0});
  CHECK(rank() != 0 || (all.rows == mine.rows && all.cols == cols));
  const std::int64_t longest =
      mine.rows * *std::max_element(cols_of_rank.begin(), cols_of_rank.end());
  const std::int64_t total = mine.rows * mine.cols;
  RoundOp op = {OpKind::gather, 0, mine.rows, cols};
  for (std::int64_t begin = 0; begin < longest; begin += segment_.slot_floats(), ++op.chunk) {
    const std::int64_t count = std::clamp<std::int64_t>(total - begin, 0, segment_.slot_floats());
    TRY(open_round(op));
    if (rank() != 0) write_slot(mine, begin, count);
    join_round(op);
    if (rank() == 0) TRY(collect_chunk(op, cols_of_rank, all));
  }
  if (rank() != 0) return {};
  for_each_run(mine, 0, total, [&](const float* data, std::int64_t at, std::int64_t length) {
    for_each_run(TensorView{all.data, all.dtype, all.rows, mine.cols, all.stride}, at, length,
                 [&](float* to, std::int64_t offset, std::int64_t run) {
                   std::copy_n(data + offset, run, to);
                 });
  });
  return {};
}

// On rank 0: what the others wrote for this chunk goes to their columns.
Status ShmCollective::collect_chunk(const RoundOp& op, std::span<const std::int64_t> cols_of_rank,
                                    const TensorView& all) {
  std::int64_t column = cols_of_rank[0];
  for (int peer = 1; peer < size(); ++peer) {
    TRY(wait_for_rank(peer, round_, op));
    TRY(check_same(peer, op));
    const std::int64_t cols = cols_of_rank[static_cast<std::size_t>(peer)];
    const std::int64_t begin = op.chunk * segment_.slot_floats();
    const std::int64_t count =
        std::clamp<std::int64_t>(op.rows * cols - begin, 0, segment_.slot_floats());
    const float* slot = segment_.slot(peer, round_).data();
    const TensorView columns = {all.f32() + column, all.dtype, all.rows, cols, all.stride};
    for_each_run(columns, begin, count, [slot](float* to, std::int64_t at, std::int64_t length) {
      std::copy_n(slot + at, length, to);
    });
    column += cols;
  }
  return {};
}

Status ShmCollective::await_peers(Duration patience) {
  const RoundOp op = {OpKind::barrier, 0, 0, 0};
  const Duration usual = std::exchange(options_.deadline, patience);
  Status met = open_round(op);
  if (met) {
    join_round(op);
    met = wait_for_peers(op);
  }
  options_.deadline = usual;
  return met;
}

}  // namespace

Result<std::unique_ptr<Collective>> make_shm_collective(ReplicaSegment segment,
                                                        const ShmCollectiveOptions& options) {
  if (options.rank < 0 || options.rank >= segment.ranks()) {
    return invalid(fmt::format("shared-memory collective: rank {} in a segment of {} ranks",
                               options.rank, segment.ranks()));
  }
  if (segment.line(options.rank).joined.exchange(1) != 0) {
    return internal_error(fmt::format(
        "shared-memory collective: rank {} has joined this segment (generation {}) before; a "
        "restarted replica needs a new one",
        options.rank, segment.generation()));
  }
  return std::unique_ptr<Collective>(std::make_unique<ShmCollective>(segment, options));
}

}  // namespace plimsoll
