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

class Judge {
 public:
  Judge(const ForeignLog* before, const ForeignLog* after) : before_(before), after_(after) {}

  std::optional<Reason> operator()(const Difference& difference) const {
    if (difference.kind == DifferenceKind::environment) {
      // A log that does not say it is no other machine.
      if (!difference.before || !difference.after) return Reason{"only one log says it", 0.05};
      return memory(difference);
    }
    if (const auto reason = fraction(difference)) return reason;
    return graphs(difference);
  }

 private:
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
      // Beside a launch of ours it is not known what that had.
      const bool is_mixed = before_ == nullptr || after_ == nullptr;
      return Reason{fmt::format("KV {} -> {}{}", format_bytes(*kv_before), format_bytes(*kv_after),
                                is_mixed ? ", with what was free and taken in that log" : ""),
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

LaunchJudge judge_of_logs(const ForeignLog* before, const ForeignLog* after) {
  return Judge(before, after);
}

}  // namespace plimsoll
