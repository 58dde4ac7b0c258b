#include "tools/cli/plan_bar.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/base/shown_text.h"

namespace plimsoll {
namespace {

constexpr std::size_t kLegendColumns = 96;

// Rows that people think of as one thing.
struct PartKind {
  const char* name;
  std::array<Term, 4> terms;
  std::size_t term_count;
  int colour;         // of 256 in a terminal
  const char* fill;   // in an image
  const char* glyph;  // without colour
};
constexpr std::array<PartKind, 7> kKinds = {{
    {"weights", {Term::weights, Term::absorbed, Term::vision, Term::draft}, 4, 33, "#2f6fb3", "█"},
    {"start", {Term::context, Term::collective, Term::process}, 3, 244, "#8a8f98", "▒"},
    {"buffers",
     {Term::activations, Term::workspace, Term::logits, Term::tables},
     4,
     178,
     "#d6a21f",
     "▓"},
    {"ep-buffer", {Term::ep_buffer}, 1, 166, "#d0652b", "▚"},
    {"graphs", {Term::graphs}, 1, 133, "#9d5bb5", "░"},
    {"margin", {Term::margin}, 1, 250, "#c9ced6", "·"},
    {"kv", {Term::kv}, 1, 35, "#2e9e5b", "▞"},
}};
constexpr PartKind kFree = {"free", {}, 0, 238, "#f2f4f7", " "};

const PartKind& kind_of(const BarPart& part) {
  if (part.is_free) return kFree;
  return *std::ranges::find(kKinds, std::string_view(part.name),
                            [](const PartKind& kind) { return std::string_view(kind.name); });
}

Bytes bytes_of(const RankPlan& rank, const PartKind& kind) {
  Bytes sum = 0;
  for (std::size_t i = 0; i < kind.term_count; ++i) sum += rank.bytes(kind.terms[i]);
  return sum;
}

std::string painted(const BarPart& part, std::int64_t count, bool has_colour) {
  const PartKind& kind = kind_of(part);
  std::string cells;
  for (std::int64_t i = 0; i < count; ++i) {
    cells += has_colour && !part.is_free ? "█" : kind.glyph;
  }
  if (!has_colour || part.is_free) return cells;
  return fmt::format("\033[38;5;{}m{}\033[0m", kind.colour, cells);
}

std::string legend(const std::vector<BarPart>& parts, BarStyle style) {
  std::string out;
  std::size_t columns = 0;
  for (const BarPart& part : parts) {
    const std::string text = fmt::format("{} {}", part.name, format_bytes(part.bytes));
    const std::size_t width = text.size() + 4;  // glyph, space, two between
    if (columns == 0 || columns + width > kLegendColumns) {
      out += columns == 0 ? "  " : "\n  ";
      columns = 0;
    }
    const std::string glyph = part.is_free ? "□" : painted(part, 1, style.has_colour);
    out += fmt::format("{} {}  ", glyph, text);
    columns += width;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out + "\n";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : shown_line(text)) {  // XML knows no control characters
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

constexpr double kSvgLeft = 16;
constexpr double kSvgWidth = 928;
constexpr double kSvgBar = 34;
constexpr double kSvgGroup = 128;  // of one kind of rank: title, bar, legend
constexpr double kSvgTop = 64;

std::string svg_text(double x, double y, std::string_view style, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, escaped(text));
}

std::string svg_group(const RankGroup& group, double top) {
  const RankPlan& rank = *group.first;
  const std::vector<BarPart> parts = bar_parts(rank, 1000);
  const double whole = static_cast<double>(std::max({rank.budget, rank.total(), Bytes{1}}));
  std::string out = svg_text(kSvgLeft, top + 14, "class=\"title\"",
                             fmt::format("{}: {}", group_title(group), rank_text(rank)));
  double x = kSvgLeft;
  double key = kSvgLeft;
  double line = top + kSvgBar + 48;
  for (const BarPart& part : parts) {
    const double width = kSvgWidth * static_cast<double>(part.bytes) / whole;
    out += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\">"
        "<title>{} {}</title></rect>\n",
        x, top + 22, width, kSvgBar, kind_of(part).fill, part.name, format_bytes(part.bytes));
    x += width;
    const std::string text = fmt::format("{} {}", part.name, format_bytes(part.bytes));
    const double text_width = 30 + 7.0 * static_cast<double>(text.size());
    if (key + text_width > kSvgLeft + kSvgWidth) {
      key = kSvgLeft;
      line += 18;
    }
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\" fill=\"{}\" "
        "class=\"swatch\"/>\n",
        key, line - 9, kind_of(part).fill);
    out += svg_text(key + 14, line, "class=\"key\"", text);
    key += text_width;
  }
  const double end = kSvgLeft + kSvgWidth * static_cast<double>(rank.budget) / whole;
  out += fmt::format(
      "<line x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" class=\"budget\"/>\n", end,
      top + 18, top + 22 + kSvgBar + 4);
  return out;
}

}  // namespace

std::vector<BarPart> bar_parts(const RankPlan& rank, std::int64_t cells) {
  std::vector<BarPart> parts;
  for (const PartKind& kind : kKinds) {
    const Bytes bytes = bytes_of(rank, kind);
    if (bytes > 0) parts.push_back({.name = kind.name, .bytes = bytes});
  }
  const Bytes spare = rank.budget - rank.total();
  if (spare > 0) parts.push_back({.name = kFree.name, .bytes = spare, .is_free = true});
  if (rank.budget <= 0) return parts;
  // Ends are rounded, not widths, so that the sum is right.
  Bytes before = 0;
  std::int64_t drawn = 0;
  for (BarPart& part : parts) {
    before += part.bytes;
    const double end = static_cast<double>(before) / static_cast<double>(rank.budget);
    // However far beyond its budget a rank is, the line stays a line.
    const std::int64_t cell =
        std::min<std::int64_t>(std::llround(end * static_cast<double>(cells)), 2 * cells);
    part.cells = std::max<std::int64_t>(0, cell - drawn);
    drawn = std::max(drawn, cell);
  }
  return parts;
}

std::string plan_bar(const RankGroup& group, BarStyle style) {
  const RankPlan& rank = *group.first;
  const std::vector<BarPart> parts = bar_parts(rank, style.cells);
  std::string out = fmt::format("{}: {}\n  ▕", group_title(group), rank_text(rank));
  std::int64_t drawn = 0;
  for (const BarPart& part : parts) {
    // The budget's end is marked where the bar goes on beyond it.
    const std::int64_t inside = std::clamp<std::int64_t>(style.cells - drawn, 0, part.cells);
    out += painted(part, inside, style.has_colour);
    drawn += inside;
    if (drawn == style.cells && inside < part.cells) out += "▏";
    if (inside < part.cells) out += painted(part, part.cells - inside, style.has_colour);
    if (inside < part.cells) drawn += part.cells - inside;
  }
  for (; drawn < style.cells; ++drawn) out += " ";
  const Bytes missing = rank.total() - rank.budget;
  out += missing > 0
             ? fmt::format(" {} missing of {}\n", format_bytes(missing), format_bytes(rank.total()))
             : fmt::format("▏ {}\n", format_bytes(rank.budget));
  return out + legend(parts, style);
}

std::string plan_svg(const MemoryPlan& plan) {
  const std::vector<RankGroup> groups = group_ranks(plan);
  const double height = kSvgTop + kSvgGroup * static_cast<double>(groups.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"{0:.0f}\" viewBox=\"0 0 "
      "960 "
      "{0:.0f}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n"
      "<style>.title{{font-weight:600}} .key{{fill:#333}} .swatch{{stroke:#999;stroke-width:.5}} "
      ".budget{{stroke:#c0392b;stroke-width:2}} .head{{font-size:16px;font-weight:700}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      height);
  const std::string summary = memory_summary(plan);
  double y = 24;
  std::string_view rest = summary;
  for (bool is_first = true; !rest.empty(); is_first = false) {
    const std::size_t end = rest.find('\n');
    out +=
        svg_text(kSvgLeft, y, is_first ? "class=\"head\"" : "class=\"key\"", rest.substr(0, end));
    y += 18;
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  }
  double top = std::max(kSvgTop, y);
  for (const RankGroup& group : groups) {
    out += svg_group(group, top);
    top += kSvgGroup;
  }
  return out + "</svg>\n";
}

}  // namespace plimsoll
