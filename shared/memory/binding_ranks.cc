#include "shared/memory/binding_ranks.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "shared/memory/rank_ledger.h"

namespace plimsoll {
namespace {

constexpr std::size_t kFew = 4;

// All that rows depend on but what a step does not change: the context and the margin.
auto kind_of(const RankShape& rank, Bytes smallest) {
  const RankShard& shard = rank.shard;
  return std::make_tuple(rank.device->memory_total == smallest, rank.device->multiprocessors,
                         rank.device->compute_major, rank.kv_token_bytes, rank.weights,
                         rank.absorbed, rank.vision, rank.draft, shard.heads.size(),
                         shard.kv_heads.size(), shard.ffn.size(), shard.expert_ffn.size(),
                         shard.shared_ffn.size(), shard.vocab.size(), shard.experts, rank.leader,
                         rank.on_cuda);
}

// Of one kind, by their places; -1: none yet.
struct Tightest {
  std::ptrdiff_t room = -1;   // for KV beside all rows
  std::ptrdiff_t total = -1;  // of which utilization is a share
  std::ptrdiff_t claim = -1;  // the smallest whose share does not fit beside its start
  std::ptrdiff_t start = -1;  // has not free what is claimed of it
};

class Finder {
 public:
  // With so much less memory on the smallest devices.
  Finder(const FitInputs& in, Bytes smallest, Bytes less)
      : in_(in), smallest_(smallest), less_(less), step_(step_shape(in, 1, 1)) {}

  void take(std::size_t place, Tightest& of) {
    const RankShape& rank = in_.ranks[place];
    const TermBytes bytes = ledger_bytes(in_, rank, step_);
    const Bytes budget = rank.budget - less(rank);
    const Bytes room = budget - bytes.sum();
    rooms_.push_back(room);
    const auto own = static_cast<std::ptrdiff_t>(place);
    if (of.room < 0 || room < rooms_[static_cast<std::size_t>(of.room)]) of.room = own;
    if (in_.rule != KvRule::utilization) return;
    if (of.total < 0 || total(own) < total(of.total)) of.total = own;
    const Bytes claimed = share_of_bytes_up(total(own), in_.fraction);
    if (claimed > rank.free_at_start - less(rank)) of.start = own;
    const bool is_within = claimed + start_bytes(bytes) + bytes[Term::margin] <= budget;
    if (!is_within && (of.claim < 0 || total(own) < total(of.claim))) of.claim = own;
  }

 private:
  Bytes total(std::ptrdiff_t place) const {
    const RankShape& rank = in_.ranks[static_cast<std::size_t>(place)];
    return rank.device->total_to_share() - less(rank);
  }
  Bytes less(const RankShape& rank) const {
    return rank.device->memory_total == smallest_ ? less_ : 0;
  }

  const FitInputs& in_;
  Bytes smallest_;
  Bytes less_;
  StepShape step_;
  std::vector<Bytes> rooms_;  // by place
};

}  // namespace

FitInputs binding_ranks(const FitInputs& in) {
  if (!in.on_devices || in.ranks.size() <= kFew) return in;
  Bytes smallest = in.ranks.front().device->memory_total;
  for (const RankShape& rank : in.ranks) {
    smallest = std::min(smallest, rank.device->memory_total);
  }
  std::vector<bool> is_kept(in.ranks.size(), false);
  const auto keep = [&](Bytes less) {
    Finder finder(in, smallest, less);
    std::map<decltype(kind_of(in.ranks.front(), smallest)), Tightest> kinds;
    for (std::size_t place = 0; place < in.ranks.size(); ++place) {
      finder.take(place, kinds[kind_of(in.ranks[place], smallest)]);
    }
    for (const auto& [kind, of] : kinds) {
      for (const std::ptrdiff_t place : {of.room, of.total, of.claim, of.start}) {
        if (place >= 0) is_kept[static_cast<std::size_t>(place)] = true;
      }
    }
  };
  keep(0);
  // With less memory others may not have free what is claimed of them.
  if (in.rule == KvRule::utilization && in.smaller) keep(in.smaller->above);
  std::vector<RankShape> kept;
  for (std::size_t place = 0; place < in.ranks.size(); ++place) {
    if (is_kept[place]) kept.push_back(in.ranks[place]);
  }
  FitInputs few = in;
  few.ranks = std::move(kept);
  return few;
}

}  // namespace plimsoll
