#include "shared/memory/foreign_log/launch_state.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "shared/base/text.h"
#include "shared/options/foreign_names.h"

namespace plimsoll {
namespace {

constexpr std::size_t kRanksMax = 1024;
constexpr std::size_t kArgsMax = 2000;
constexpr std::size_t kNotesMax = 8;

std::string shortened(std::string_view text) {
  std::string valid = to_valid_utf8(trim(text).substr(0, 4 * kEndLineMax));
  if (valid.size() <= kEndLineMax) return valid;
  valid.resize(complete_utf8_prefix(std::string_view(valid).substr(0, kEndLineMax - 3)));
  return valid + "...";
}

bool is_about_memory(ForeignEnd end) {
  return end != ForeignEnd::unknown && end != ForeignEnd::served && end != ForeignEnd::other;
}

}  // namespace

void LaunchState::begin_launch() {
  const std::int64_t lines = log_.lines;
  const std::int64_t launches = log_.launches + 1;
  const ForeignServer server = log_.server;
  log_ = ForeignLog();
  log_.server = server;
  log_.lines = lines;
  log_.launches = launches;
  log_.version = std::exchange(version_next_, {});
  phases_.clear();
  engines.clear();
  failed_ranks_.clear();
  given_ = std::exchange(given_next_, {});
}

void LaunchState::give(std::string_view flag) {
  std::string name = canonical_option(flag.substr(0, 128));
  // Behind the arguments, and nothing has happened since: of this launch.
  const bool is_behind = !log_.args.empty() && log_.ranks.empty() && given_next_.empty() &&
                         log_.end == ForeignEnd::unknown;
  std::set<std::string, std::less<>>& given = is_behind ? given_ : given_next_;
  if (given.size() < kArgsMax) given.insert(std::move(name));
}

void LaunchState::become_ready() {
  log_.became_ready = true;
  // What was printed on the way was survived.
  if (log_.end == ForeignEnd::unknown || log_.end == ForeignEnd::other) {
    log_.end = ForeignEnd::served;
    log_.end_line.clear();
    log_.end_line_number = 0;
    log_.end_ranks = 0;
  }
}

void LaunchState::apply_given() {
  if (given_.empty()) return;
  for (ForeignArg& arg : log_.args) {
    if (given_.contains(arg.name)) {
      arg.origin = ArgOrigin::given;
    } else if (arg.origin == ArgOrigin::given) {
      arg.origin = ArgOrigin::automatic;
    }
  }
}

ForeignRank& LaunchState::rank(std::string_view name) {
  const auto found = std::ranges::find(log_.ranks, name, &ForeignRank::name);
  if (found != log_.ranks.end()) return *found;
  if (log_.ranks.size() >= kRanksMax) return log_.ranks.back();
  log_.ranks.emplace_back();
  log_.ranks.back().name = name;
  return log_.ranks.back();
}

RankPhase& LaunchState::phase(std::string_view rank_name) {
  const auto found = phases_.find(rank_name);
  if (found != phases_.end()) return found->second;
  if (phases_.size() >= kRanksMax) return phases_.begin()->second;
  return phases_.emplace(std::string(rank_name), RankPhase::starting).first->second;
}

RankPhase LaunchState::furthest() const {
  RankPhase furthest = RankPhase::starting;
  for (const auto& [name, phase] : phases_) furthest = std::max(furthest, phase);
  return furthest;
}

void LaunchState::reach(RankPhase at) {
  for (auto& [name, phase] : phases_) phase = std::max(phase, at);
}

void LaunchState::set_arg(std::string_view written, std::string value, ArgOrigin origin) {
  std::string name = canonical_option(written);
  const auto found = std::ranges::find(log_.args, name, &ForeignArg::name);
  if (found != log_.args.end()) return;  // what was printed first is what was asked for
  if (log_.args.size() >= kArgsMax) return;
  log_.args.push_back({std::move(name), std::string(written), std::move(value), origin});
}

void LaunchState::set_version(std::string version) {
  version_next_ = version;
  log_.version = std::move(version);
}

void LaunchState::note(std::string_view text) {
  std::string words = shortened(text);
  if (log_.notes.size() >= kNotesMax || std::ranges::find(log_.notes, words) != log_.notes.end()) {
    return;
  }
  log_.notes.push_back(std::move(words));
}

void LaunchState::fail(ForeignEnd end, const LogLine& line) {
  const bool is_first = log_.end == ForeignEnd::unknown || log_.end == ForeignEnd::served;
  if (is_first || (!is_about_memory(log_.end) && is_about_memory(end))) {
    log_.end = end;
    log_.end_line = shortened(line.text);
    log_.end_line_number = log_.lines;
    log_.end_rank = line.rank;
    failed_ranks_.clear();
  } else if (log_.end != end) {
    return;
  }
  if (failed_ranks_.size() < kRanksMax) failed_ranks_.emplace(line.rank);
  log_.end_ranks = static_cast<std::int64_t>(failed_ranks_.size());
}

OomProcess LaunchState::process_of(const LogLine& line) const {
  OomProcess self{.pid = pid_of_line(line.text)};
  const auto named = std::ranges::find(log_.ranks, line.rank, &ForeignRank::name);
  const ForeignRank* rank = named != log_.ranks.end() ? &*named : log_.tightest();
  if (rank == nullptr) return self;
  self.held_min = rank->weights.value_or(0) + std::max<Bytes>(rank->kv.value_or(0), 0);
  return self;
}

void LaunchState::fail_of_oom(const OomLine& oom, const LogLine& line) {
  const RankPhase at =
      std::max(phase(line.rank), line.rank.empty() ? furthest() : RankPhase::starting);
  ForeignEnd end = ForeignEnd::no_weights;
  if (log_.became_ready) {
    end = ForeignEnd::no_step;
  } else if (at >= RankPhase::sized) {
    end = ForeignEnd::no_graphs;
  } else if (at == RankPhase::loaded) {
    // SGLang has no trial step: what comes then is KV itself.
    end = log_.server == ForeignServer::sglang ? ForeignEnd::no_pool : ForeignEnd::no_profile;
  }
  // Half of the device is no leftover of our own.
  OomProcess self = process_of(line);
  const ForeignRank* rank = log_.tightest();
  if (oom.total && rank != nullptr && rank->base && *rank->base <= *oom.total) {
    self.others = *oom.total - *rank->base;
  } else if (log_.total && log_.free_at_start) {
    self.others = *log_.total - *log_.free_at_start;
  }
  const Bytes others = oom.held_by_others(self);
  if (oom.total && others > *oom.total / 4) end = ForeignEnd::neighbour;
  const bool is_first = !is_about_memory(log_.end);
  fail(end, line);
  if (is_first) {
    log_.oom = oom;
    log_.held_by_others = others;
    if (!log_.total) log_.total = oom.total;
  }
}

void LaunchState::fold_speakers() {
  std::vector<std::string> workers;
  for (const ForeignRank& rank : log_.ranks) {
    if (rank.weights && !rank.name.empty()) workers.push_back(rank.name);
  }
  // "DP0" speaks for "DP0 TP1", and for "TP1" where there is but one engine.
  const auto is_speaker = [&](const ForeignRank& rank) {
    if (rank.weights) return false;
    if (rank.name.empty()) return !workers.empty();
    if (rank.name.find(' ') != std::string::npos || !rank.name.starts_with("DP")) return false;
    return std::ranges::any_of(workers, [&](const std::string& worker) {
      return worker.starts_with(rank.name + " ") || worker.find("DP") == std::string::npos;
    });
  };
  // The least of all workers, of whom none has said its own.
  std::optional<Bytes> kv;
  std::erase_if(log_.ranks, [&](const ForeignRank& rank) {
    if (!is_speaker(rank)) return false;
    if (rank.kv) kv = kv ? std::min(*kv, *rank.kv) : rank.kv;
    return true;
  });
  if (!kv || std::ranges::any_of(log_.ranks, [](const ForeignRank& rank) { return !!rank.kv; })) {
    return;
  }
  for (ForeignRank& rank : log_.ranks) rank.kv = kv;
}

}  // namespace plimsoll
