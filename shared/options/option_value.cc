#include "shared/options/option_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

using OptionalField = std::optional<std::int64_t> Options::*;

struct TimeUnit {
  std::string_view name;
  std::int64_t milliseconds;
};
constexpr std::array<TimeUnit, 4> kTimeUnits = {
    {{"h", 3'600'000}, {"min", 60'000}, {"s", 1000}, {"ms", 1}}};

struct ByteUnit {
  std::string_view name;
  Bytes bytes;
};
constexpr std::array<ByteUnit, 5> kByteUnits = {
    {{"TiB", 1024 * kGiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}, {"B", 1}}};

std::string format_number(const OptionRow& row, std::int64_t value) {
  switch (row.kind) {
    case OptionKind::size:
      return format_exact_bytes(value);
    case OptionKind::duration:
      return format_duration(milliseconds(value));
    case OptionKind::fraction:
      return format_fraction(value);
    default:
      return fmt::format("{}", value);
  }
}

Result<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || rest != end) {
    return invalid(fmt::format("'{}' is not a whole number", text));
  }
  return value;
}

Result<std::int64_t> parse_number(const OptionRow& row, std::string_view text) {
  switch (row.kind) {
    case OptionKind::size:
      return parse_bytes(text);
    case OptionKind::duration: {
      const milliseconds duration = TRY(parse_duration(text));
      return static_cast<std::int64_t>(duration.count());
    }
    case OptionKind::fraction:
      return parse_fraction(text);
    default:
      return parse_count(text);
  }
}

Status check_range(const OptionRow& row, std::int64_t value) {
  if (value >= row.min && value <= row.max) return {};
  return invalid(fmt::format("{} is out of range", format_number(row, value)));
}

Status check_text(const OptionRow& row, std::string_view text) {
  if (text.find('\0') != std::string_view::npos || !is_utf8(text)) {
    return invalid("the value is not valid UTF-8 text");
  }
  if (row.kind != OptionKind::word) {
    if (text.empty() && row.empty.empty()) return invalid("the value is empty");
    return row.check == nullptr ? Status() : row.check(text);
  }
  if (std::find(row.words.begin(), row.words.end(), text) != row.words.end()) return {};
  const std::string meant = nearest(text, row.words);
  return invalid(fmt::format("'{}' is not one of the words{}", text,
                             meant.empty() ? "" : fmt::format(", did you mean '{}'?", meant)));
}

// Every message ends with what is allowed.
Error with_allowed(const OptionRow& row, Error error) {
  const std::string allowed = option_allowed(row);
  if (!allowed.empty()) error.message += fmt::format(" (allowed: {})", allowed);
  return error;
}

Status store_number(Options& options, const OptionRow& row, std::int64_t value) {
  const Status in_range = check_range(row, value);
  if (!in_range) return with_allowed(row, in_range.error());
  if (const auto* optional = std::get_if<OptionalField>(&row.field)) {
    options.** optional = value;
  } else if (const auto* duration = std::get_if<milliseconds Options::*>(&row.field)) {
    options.** duration = milliseconds(value);
  } else {
    options.*std::get<std::int64_t Options::*>(row.field) = value;
  }
  return {};
}

void set_auto(Options& options, const OptionRow& row) {
  if (row.zero_is_auto) {
    options.*std::get<std::int64_t Options::*>(row.field) = 0;
  } else {
    options.*std::get<OptionalField>(row.field) = std::nullopt;
  }
}

bool is_auto(const Options& options, const OptionRow& row) {
  return row.zero_is_auto && options.*std::get<std::int64_t Options::*>(row.field) == 0;
}

}  // namespace

Status set_option(Options& options, const OptionRow& row, std::string_view text) {
  if (const auto* field = std::get_if<std::string Options::*>(&row.field)) {
    const Status allowed = check_text(row, text);
    if (!allowed) return with_allowed(row, allowed.error());
    options.** field = text;
    return {};
  }
  if (takes_auto(row) && text == "auto") {
    set_auto(options, row);
    return {};
  }
  const Result<std::int64_t> value = parse_number(row, text);
  if (!value) return with_allowed(row, value.error());
  return store_number(options, row, *value);
}

std::string option_text(const Options& options, const OptionRow& row) {
  if (const auto* text = std::get_if<std::string Options::*>(&row.field)) return options.**text;
  if (const auto* optional = std::get_if<OptionalField>(&row.field)) {
    const std::optional<std::int64_t>& value = options.**optional;
    return value ? format_number(row, *value) : "auto";
  }
  if (const auto* duration = std::get_if<milliseconds Options::*>(&row.field)) {
    return format_duration(options.**duration);
  }
  if (is_auto(options, row)) return "auto";
  return format_number(row, options.*std::get<std::int64_t Options::*>(row.field));
}

Json option_json(const Options& options, const OptionRow& row) {
  if (const auto* text = std::get_if<std::string Options::*>(&row.field)) return options.**text;
  if (const auto* optional = std::get_if<OptionalField>(&row.field)) {
    const std::optional<std::int64_t>& value = options.**optional;
    if (value && row.kind == OptionKind::fraction) {
      return static_cast<double>(*value) / static_cast<double>(kWhole);
    }
    return value ? Json(*value) : Json("auto");
  }
  if (const auto* duration = std::get_if<milliseconds Options::*>(&row.field)) {
    return static_cast<std::int64_t>((options.**duration).count());
  }
  if (is_auto(options, row)) return "auto";
  return options.*std::get<std::int64_t Options::*>(row.field);
}

Status set_option_json(Options& options, const OptionRow& row, const Json& value) {
  const bool is_text = std::holds_alternative<std::string Options::*>(row.field);
  if (value.is_string() && (is_text || takes_auto(row))) {
    return set_option(options, row, value.as_string());
  }
  if (row.kind == OptionKind::fraction && value.is_number()) {
    const double millionths = std::round(value.as_double() * static_cast<double>(kWhole));
    if (!(std::abs(millionths) < 1e15)) return invalid("the fraction is out of range");
    return store_number(options, row, static_cast<std::int64_t>(millionths));
  }
  if (value.is_integer() && !is_text) return store_number(options, row, value.as_int());
  return invalid(
      fmt::format("needs {}, not {}", is_text ? "a string" : "an integer", value.type_name()));
}

std::string option_allowed(const OptionRow& row) {
  std::string out;
  if (row.kind == OptionKind::word) {
    for (std::size_t i = 0; i < row.words.size(); ++i) {
      if (i > 0) out += i + 1 == row.words.size() ? " or " : ", ";
      out += row.words[i];
    }
    return out;
  }
  if (row.kind == OptionKind::text || row.kind == OptionKind::path) return std::string(row.allowed);
  out = format_number(row, row.min) + " to " + format_number(row, row.max);
  if (takes_auto(row)) out += ", or auto";
  return out;
}

std::string format_duration(milliseconds duration) {
  const std::int64_t count = duration.count();
  if (count == 0) return "0s";
  for (const TimeUnit& unit : kTimeUnits) {
    if (count % unit.milliseconds == 0)
      return fmt::format("{}{}", count / unit.milliseconds, unit.name);
  }
  return fmt::format("{}ms", count);
}

Result<milliseconds> parse_duration(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (failure != std::errc() || !std::isfinite(number) || number < 0) {
    return invalid(
        fmt::format("'{}' is not a duration; write for example 250ms, 10s or 5min", text));
  }
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  for (const TimeUnit& unit : kTimeUnits) {
    if (suffix != unit.name) continue;
    const double count = std::round(number * static_cast<double>(unit.milliseconds));
    if (count > 1e15) return invalid(fmt::format("'{}' is longer than any wait", text));
    return milliseconds(static_cast<std::int64_t>(count));
  }
  return invalid(fmt::format("'{}' needs a unit: ms, s, min or h (250ms, 10s, 5min)", text));
}

std::string format_exact_bytes(Bytes bytes) {
  for (const ByteUnit& unit : kByteUnits) {
    if (bytes != 0 && bytes % unit.bytes == 0) {
      return fmt::format("{}{}", bytes / unit.bytes, unit.name);
    }
  }
  return fmt::format("{}B", bytes);
}

}  // namespace plimsoll
