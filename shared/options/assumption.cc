#include "shared/options/assumption.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

// The plan's terms (term_name()), what a device has, and what one token's KV takes.
constexpr std::array<std::string_view, 18> kTerms = {
    "free",     "total",  "kv-token",  "context", "collective", "weights",
    "absorbed", "vision", "draft",     "tables",  "workspace",  "activations",
    "logits",   "graphs", "ep-buffer", "process", "margin",     "draft-kv-token"};

std::string allowed() {
  std::vector<std::string> terms(kTerms.begin(), kTerms.end());
  return join(terms, ", ");
}

Result<Assumption> parse_one(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return invalid(fmt::format("'{}' is not TERM=BYTES (weights=72.29GiB)", text));
  }
  const std::string_view term = trim(text.substr(0, equals));
  if (std::find(kTerms.begin(), kTerms.end(), term) == kTerms.end()) {
    const std::string meant = nearest(term, kTerms);
    return invalid(fmt::format("'{}' is no term of the plan{}; terms: {}", term,
                               meant.empty() ? "" : fmt::format(", did you mean '{}'?", meant),
                               allowed()));
  }
  const Bytes bytes =
      TRY_CONTEXT(fmt::format("{}: ", term), parse_bytes(trim(text.substr(equals + 1))));
  return Assumption{std::string(term), bytes};
}

}  // namespace

Result<std::vector<Assumption>> parse_assumptions(std::string_view text) {
  std::vector<Assumption> assumptions;
  if (trim(text).empty()) return assumptions;
  for (const std::string_view part : split(text, ',')) {
    Assumption one = TRY(parse_one(trim(part)));
    const auto same = std::find_if(assumptions.begin(), assumptions.end(),
                                   [&](const Assumption& a) { return a.term == one.term; });
    if (same == assumptions.end()) {
      assumptions.push_back(std::move(one));
    } else {
      same->bytes = one.bytes;
    }
  }
  return assumptions;
}

}  // namespace plimsoll
