#include "shared/generation/log_launch.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "shared/generation/launch_suspects.h"
#include "shared/memory/foreign_log/sglang_rules.h"
#include "shared/options/foreign_names.h"

namespace plimsoll {
namespace {

constexpr std::string_view kFreeBefore = "free before weights";
constexpr double kSameMemory = 0.02;  // a difference of less is no event
constexpr double kSameWeights = 0.05;
// Options of ours that no other server has.
constexpr std::array<std::string_view, 7> kOursAlone = {
    "machine", "devices", "simulation", "assume", "threads", "cpu-path", "device-memory"};
constexpr std::array<std::string_view, 3> kFiguresOfARank = {"weights", "kv", "graphs"};

std::optional<double> number_of(const std::optional<std::string>& text) {
  if (!text) return {};
  double value = 0;
  const char* end = text->data() + text->size();
  const auto [rest, bad] = std::from_chars(text->data(), end, value);
  return bad == std::errc() && rest == end && std::isfinite(value) ? std::optional(value)
                                                                   : std::nullopt;
}

std::optional<Bytes> least(const ForeignLog& log, std::optional<Bytes> ForeignRank::*field) {
  std::optional<Bytes> found;
  for (const ForeignRank& rank : log.ranks) {
    if (rank.*field && (!found || *(rank.*field) < *found)) found = rank.*field;
  }
  return found;
}

std::optional<Bytes> free_before(const ForeignLog& log) {
  return log.server == ForeignServer::sglang ? least(log, &ForeignRank::base) : log.free_at_start;
}

// KV with another fraction and everything else as it was.
std::optional<Bytes> kv_with(const ForeignLog& log, const std::string& name, double fraction) {
  if (fraction < 0 || fraction > 1) return {};
  if (name == "mem-fraction-static" && log.server == ForeignServer::sglang) {
    const auto base = least(log, &ForeignRank::base);
    const auto left = least(log, &ForeignRank::left);
    if (base && left) return sglang_kv(*base, *left, fraction);
  }
  if (name == "gpu-memory-utilization" && log.server == ForeignServer::vllm) {
    const auto kv = log.kv_rule();
    if (kv && log.total && log.fraction) {
      return *kv + static_cast<Bytes>(
                       std::llround(static_cast<double>(*log.total) * (fraction - *log.fraction)));
    }
  }
  return {};
}

std::optional<double> figure_of(const LaunchFacts& facts, std::string_view name) {
  const auto found = std::ranges::find(facts.figures, name, &Figure::name);
  return found == facts.figures.end() ? std::nullopt : std::optional(found->value);
}

// All that a server counts as such.
std::optional<double> own_weights(const LaunchFacts& own) {
  const auto weights = figure_of(own, "weights of rank 0");
  if (!weights) return {};
  return *weights + figure_of(own, "absorbed of rank 0").value_or(0) +
         figure_of(own, "vision of rank 0").value_or(0);
}

class Judge {
 public:
  Judge(const ForeignLog* before, const ForeignLog* after, const LaunchFacts* own)
      : before_(before), after_(after) {
    if (own == nullptr || (before == nullptr) == (after == nullptr)) return;
    const ForeignLog& log = before != nullptr ? *before : *after;
    const ForeignRank* rank = log.tightest();
    own_kv_ = figure_of(*own, "kv of rank 0");
    const auto weights = own_weights(*own);
    same_weights_ = weights && rank != nullptr && rank->weights &&
                    std::abs(*weights / static_cast<double>(*rank->weights) - 1) < kSameWeights;
  }

  std::optional<Reason> operator()(const Difference& difference) const {
    if (difference.kind == DifferenceKind::environment) {
      // A log that does not say it is no other machine.
      if (!difference.before || !difference.after) return Reason{"only one log says it", 0.05};
      return memory(difference);
    }
    if (is_mixed() && is_ours_alone(difference)) return Reason{"only one of them has it", 0.05};
    if (difference.name == "model" && same_weights_) {
      return Reason{"another name; weights of the same size", 0.2};
    }
    if (const auto reason = own_fraction(difference)) return reason;
    if (const auto reason = fraction(difference)) return reason;
    return graphs(difference);
  }

 private:
  bool is_mixed() const { return before_ == nullptr || after_ == nullptr; }

  // Of two logs: models of one size, or not known to differ.
  bool alike() const {
    const auto a = least(*before_, &ForeignRank::weights);
    const auto b = least(*after_, &ForeignRank::weights);
    return !a || !b || *b <= 0 ||
           std::abs(static_cast<double>(*a) / static_cast<double>(*b) - 1) < kSameWeights;
  }

  static bool is_ours_alone(const Difference& difference) {
    return (!difference.before || !difference.after) &&
           std::ranges::find(kOursAlone, difference.name) != kOursAlone.end();
  }

  // What each of them had: they differ in the option that sizes it, and in no weights.
  std::optional<Reason> own_fraction(const Difference& difference) const {
    const ForeignLog* log = before_ != nullptr ? before_ : after_;
    const bool sizes_kv =
        difference.name ==
        (log->server == ForeignServer::sglang ? "mem-fraction-static" : "gpu-memory-utilization");
    const auto theirs = log->kv_rule();
    if (!is_mixed() || !sizes_kv || !same_weights_ || !own_kv_ || !theirs) return {};
    const auto ours = static_cast<Bytes>(*own_kv_);
    const Bytes first = before_ != nullptr ? *theirs : ours;
    const Bytes then = before_ != nullptr ? ours : *theirs;
    return Reason{fmt::format("KV {} -> {}", format_bytes(first), format_bytes(then)),
                  suspicion(first, then)};
  }

  // A smaller KV would have helped there.
  bool is_short_beside_kv() const {
    return after_ != nullptr &&
           (after_->end == ForeignEnd::no_graphs || after_->end == ForeignEnd::no_step);
  }

  std::optional<Reason> fraction(const Difference& difference) const {
    const auto from = number_of(difference.before);
    const auto to = number_of(difference.after);
    if (!from || !to) return {};
    const std::string name = canonical_option(difference.name);
    for (const ForeignLog* log : {before_, after_}) {
      if (log == nullptr) continue;
      const auto kv_before = kv_with(*log, name, *from);
      const auto kv_after = kv_with(*log, name, *to);
      if (!kv_before || !kv_after) continue;
      // What the other of them had is not told by it.
      const char* whose = is_mixed() ? ", with what was free and taken in that log"
                          : !alike() ? log == before_
                                           ? ", with what was free and taken in the first log"
                                           : ", with what was free and taken in the second log"
                                     : "";
      return Reason{
          fmt::format("KV {} -> {}{}", format_bytes(*kv_before), format_bytes(*kv_after), whose),
          suspicion(*kv_before, *kv_after)};
    }
    return {};
  }

  double suspicion(Bytes kv_before, Bytes kv_after) const {
    if ((kv_before > 0) != (kv_after > 0)) return 1.0;  // in either direction it decides alone
    if (kv_after > kv_before) return is_short_beside_kv() ? 0.95 : 0.5;
    if (kv_before <= 0) return 0.6;  // too little before, and less now
    return 0.6 + 0.35 * static_cast<double>(kv_before - kv_after) / static_cast<double>(kv_before);
  }

  std::optional<Reason> graphs(const Difference& difference) const {
    const Suspect suspect = option_suspect(canonical_option(difference.name));
    if (!suspect.is_graphs) return {};
    std::string words = suspect.why;
    for (const auto& [log, value] :
         {std::pair(before_, &difference.before), std::pair(after_, &difference.after)}) {
      if (log == nullptr || log->tightest() == nullptr || !log->tightest()->graphs) continue;
      words += fmt::format("; {} with {}", format_bytes(*log->tightest()->graphs),
                           value->value_or("its default"));
    }
    return Reason{words, is_short_beside_kv() ? 0.9 : suspect.weight / 100.0};
  }

  std::optional<Reason> memory(const Difference& difference) const {
    if (difference.name != kFreeBefore || before_ == nullptr || after_ == nullptr) return {};
    const auto a = free_before(*before_);
    const auto b = free_before(*after_);
    if (!a || !b) return {};
    const double change =
        static_cast<double>(*a - *b) / static_cast<double>(std::max<Bytes>(*a, 1));
    if (std::abs(change) < kSameMemory) return Reason{"much the same", 0.05};
    if (change < 0) return Reason{fmt::format("{} more", format_bytes(*b - *a)), 0.3};
    return Reason{fmt::format("{} less: something else holds it, or it is another device",
                              format_bytes(*a - *b)),
                  0.9};
  }

  const ForeignLog* before_;
  const ForeignLog* after_;
  std::optional<double> own_kv_;
  bool same_weights_ = false;
};

}  // namespace

LaunchFacts launch_of_log(const ForeignLog& log, const std::string& label) {
  LaunchFacts facts;
  facts.label = label;
  facts.outcome = foreign_end_text(log.end);
  for (const ForeignArg& arg : log.args) {
    facts.options.push_back({.name = arg.name,
                             .value = arg.value,
                             .source = arg_origin_name(arg.origin),
                             .place = arg.origin == ArgOrigin::automatic ? "from that log" : ""});
  }
  facts.environment.push_back(
      {.name = "server", .value = foreign_server_name(log.server), .source = ""});
  if (!log.version.empty()) {
    facts.environment.push_back({.name = "version", .value = log.version, .source = ""});
  }
  if (const auto free = free_before(log)) {
    facts.environment.push_back(
        {.name = std::string(kFreeBefore), .value = format_bytes(*free), .source = ""});
  }
  const auto figure = [&](const char* name, const auto& value, const char* unit) {
    if (value) facts.figures.push_back({name, static_cast<double>(*value), unit});
  };
  const ForeignRank* rank = log.tightest();
  if (rank != nullptr) {
    figure("weights", rank->weights, "bytes");
    figure("free after weights", rank->left, "bytes");
  }
  figure("kv", log.kv_rule(), "bytes");
  figure("kv tokens",
         log.kv_tokens ? log.kv_tokens
         : rank        ? rank->kv_tokens
                       : log.kv_tokens,
         "tokens");
  if (rank != nullptr) {
    figure("graphs", rank->graphs, "bytes");
    figure("free at the end", rank->spare, "bytes");
  }
  return facts;
}

void name_figures_like_ours(LaunchFacts& log) {
  for (Figure& figure : log.figures) {
    if (std::ranges::find(kFiguresOfARank, figure.name) == kFiguresOfARank.end()) continue;
    figure.name += " of rank 0";
  }
}

LaunchJudge judge_of_logs(const ForeignLog* before, const ForeignLog* after,
                          const LaunchFacts* own) {
  return Judge(before, after, own);
}

}  // namespace plimsoll
