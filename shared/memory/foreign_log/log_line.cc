#include "shared/memory/foreign_log/log_line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::size_t kPrefixMax = 512;  // where a rank may be named
constexpr std::size_t kHeadMax = 96;     // where a process is
constexpr double kBytesMax = 4e18;

constexpr std::array<std::string_view, 6> kRankKinds = {"TP", "DP", "PP", "EP", "CP", "ATTN_TP"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "TP0" or "ATTN_TP12".
bool is_rank_word(std::string_view word) {
  return std::ranges::any_of(kRankKinds, [&](std::string_view kind) {
    if (!word.starts_with(kind) || word.size() == kind.size() || word.size() > kind.size() + 5) {
      return false;
    }
    return std::ranges::all_of(word.substr(kind.size()), is_digit);
  });
}

std::string rank_words(std::string_view inside, std::string_view separators) {
  std::string rank;
  std::size_t at = 0;
  while (at <= inside.size()) {
    const std::size_t end = std::min(inside.find_first_of(separators, at), inside.size());
    const std::string_view word = inside.substr(at, end - at);
    if (is_rank_word(word)) rank += rank.empty() ? std::string(word) : " " + std::string(word);
    at = end + 1;
  }
  return rank;
}

struct Unit {
  std::string_view name;
  Bytes bytes;
};
// Longer names first: "GiB" begins with "G".
constexpr std::array<Unit, 12> kUnits = {{{"TiB", 1024 * kGiB},
                                          {"TB", 1024 * kGiB},
                                          {"GiB", kGiB},
                                          {"GB", kGiB},
                                          {"MiB", kMiB},
                                          {"MB", kMiB},
                                          {"KiB", kKiB},
                                          {"KB", kKiB},
                                          {"bytes", 1},
                                          {"G", kGiB},
                                          {"M", kMiB},
                                          {"B", 1}}};

// The digits at the front, without the commas that group them; empty where there are none.
std::string digits_at(std::string_view text, std::size_t& length) {
  std::string digits;
  length = 0;
  while (length < text.size() && digits.size() < 32) {
    const char c = text[length];
    const bool is_sign = (c == '-' || c == '+') && digits.empty();
    const bool is_group = c == ',' && length + 1 < text.size() && is_digit(text[length + 1]);
    if (!is_digit(c) && c != '.' && !is_sign && !is_group) break;
    if (c != '+' && c != ',') digits += c;
    ++length;
  }
  return digits;
}

std::optional<double> number_of(const std::string& digits) {
  double value = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, bad] = std::from_chars(digits.data(), end, value);
  // "3.05." ends a sentence.
  if (bad != std::errc() || (rest != end && std::string_view(rest, end) != ".")) return {};
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<std::string_view> text_behind(std::string_view text, std::string_view key) {
  const std::size_t found = text.find(key);
  if (found == std::string_view::npos) return {};
  return trim(text.substr(found + key.size()));
}

}  // namespace

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool says(std::string_view text, std::string_view part) {
  const std::size_t at = text.find(part);
  if (at == std::string_view::npos) return false;
  const bool is_quoted = at > 0 && (text[at - 1] == '"' || text[at - 1] == '\'');
  return !is_quoted || has(text, "{\"");
}

std::string rank_of_line(std::string_view line) {
  const std::string_view head = line.substr(0, kPrefixMax);
  // Words in square brackets are SGLang's: "[2026-02-26 09:12:30 DP0 TP0 EP0]", "[gpu=1]". Whoever
  // collects logs may have put brackets of its own before: "host7 sglang[4711]: ", "[pod/kimi-0] ".
  // A line that another rank has glued behind a progress bar has its own date: "it/s][2026-...
  // TP1]".
  std::string found;
  for (std::size_t open = head.find('['); open != head.npos; open = head.find('[', open + 1)) {
    const std::size_t close = head.find(']', open);
    if (close == head.npos) break;
    const std::string_view inside = head.substr(open + 1, close - open - 1);
    for (const std::string_view key : {"gpu_id=", "gpu="}) {
      std::size_t length = 0;
      if (!inside.starts_with(key)) continue;
      const std::string digits = digits_at(inside.substr(key.size()), length);
      if (!digits.empty()) return "TP" + digits;
    }
    std::string rank = rank_words(inside, " ");
    if (!rank.empty() && (found.empty() || inside.starts_with("20"))) found = std::move(rank);
  }
  if (!found.empty()) return found;
  // "Rank 3: Load weight end.", of the first versions.
  if (head.starts_with("Rank ") && head.find(": ") < 10) {
    if (const auto number = count_behind(head, "Rank ")) return "TP" + std::to_string(*number);
  }
  // "(Worker_TP0_EP0 pid=79)", "(Worker_DP1_TP0 pid=5)", "(EngineCore_DP0 pid=212)".
  const std::size_t close = head.find(" pid=");
  const std::size_t open = close == head.npos ? head.npos : head.rfind('(', close);
  if (open == head.npos) return "";
  const std::string_view inside = head.substr(open + 1, close - open - 1);
  if (const auto rank = count_behind(inside, " rank=")) return "TP" + std::to_string(*rank);
  return rank_words(inside, " _");
}

std::optional<std::int64_t> pid_of_line(std::string_view line) {
  return count_behind(line.substr(0, kHeadMax), " pid=");
}

std::string_view without_colours(std::string_view line, std::string& storage) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.find('\x1b') == std::string_view::npos) return line;
  storage.clear();
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] != '\x1b') {
      storage += line[at];
      continue;
    }
    while (at < line.size() && line[at] != 'm') ++at;
  }
  return storage;
}

std::optional<double> number_behind(std::string_view text, std::string_view key) {
  const auto behind = text_behind(text, key);
  if (!behind) return {};
  std::size_t length = 0;
  return number_of(digits_at(*behind, length));
}

std::optional<std::int64_t> count_behind(std::string_view text, std::string_view key) {
  const std::optional<double> value = number_behind(text, key);
  if (!value || std::abs(*value) > 9e15) return {};
  return static_cast<std::int64_t>(*value);
}

std::optional<Bytes> bytes_behind(std::string_view text, std::string_view key, Bytes unit) {
  const auto behind = text_behind(text, key);
  if (!behind) return {};
  std::size_t length = 0;
  const std::optional<double> value = number_of(digits_at(*behind, length));
  if (!value) return {};
  const std::string_view suffix = trim(behind->substr(length));
  for (const Unit& known : kUnits) {
    if (suffix.starts_with(known.name)) {
      unit = known.bytes;
      break;
    }
  }
  const double bytes = *value * static_cast<double>(unit);
  if (std::abs(bytes) > kBytesMax) return {};
  return static_cast<Bytes>(std::llround(bytes));
}

std::optional<Bytes> bytes_before(std::string_view text, std::string_view key) {
  const std::size_t found = text.find(key);
  if (found == std::string_view::npos) return {};
  const std::string_view head = trim(text.substr(0, found));
  const std::size_t unit = head.find_last_not_of("TGMKiBbytes");
  if (unit == std::string_view::npos) return {};
  const std::size_t last = head.find_last_not_of(' ', unit);
  if (last == std::string_view::npos || !is_digit(head[last])) return {};
  const std::size_t before = head.find_last_not_of("0123456789.,-", last);
  const std::string_view figure = head.substr(before == std::string_view::npos ? 0 : before + 1);
  return figure.find_first_of("GMKTBb") == std::string_view::npos ? std::nullopt
                                                                  : bytes_behind(figure, "");
}

}  // namespace plimsoll
