#include "shared/memory/foreign_log/log_case.h"

#include <cmath>

#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr double kThousand = 1000;

}  // namespace

double floor3(double value) { return std::floor(value * kThousand + 1e-9) / kThousand; }
double ceil3(double value) { return std::ceil(value * kThousand - 1e-9) / kThousand; }
double ratio(Bytes part, Bytes whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

LogCase::LogCase(const ForeignLog& of_log, const LogHints& hints)
    : LogFigures(figures_of(of_log, hints)), log(of_log) {
  flag = is_sglang() ? "--mem-fraction-static" : "--gpu-memory-utilization";
}

std::string LogCase::tokens_text(Bytes of_kv) const {
  return about_tokens(of_kv, kv_bytes_per_token);
}

std::string LogCase::fraction_text() const {
  return log.fraction ? fmt::format("{}", *log.fraction) : "?";
}

std::string LogCase::value_with_origin() const {
  if (!log.fraction) return "(default)";
  const ForeignArg* arg = log.arg(flag.substr(2));
  const std::string origin = arg == nullptr ? "" : arg_origin_name(arg->origin);
  return origin.empty() ? fraction_text() : fmt::format("{} ({})", fraction_text(), origin);
}

std::optional<Bytes> LogCase::one_request() const {
  if (log.kv_needed) return log.kv_needed;
  if (!kv_bytes_per_token || !context) return {};
  return static_cast<Bytes>(std::ceil(*kv_bytes_per_token * static_cast<double>(*context)));
}

}  // namespace plimsoll
