#include "shared/options/option_print.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

constexpr std::size_t kColumns = 96;

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines(1);
  for (const std::string_view word : split(text, ' ')) {
    std::string& line = lines.back();
    if (!line.empty() && line.size() + 1 + word.size() > columns) {
      lines.emplace_back(word);
    } else {
      line += (line.empty() ? "" : " ") + std::string(word);
    }
  }
  return lines;
}

std::string placeholder(const OptionRow& row) {
  switch (row.kind) {
    case OptionKind::text:
      return row.repeats ? "TERM=BYTES" : "TEXT";
    case OptionKind::path:
      return "PATH";
    case OptionKind::word: {
      std::string words;
      for (const std::string_view word : row.words) {
        words += (words.empty() ? "" : "|") + std::string(word);
      }
      return words;
    }
    case OptionKind::count:
      return "N";
    case OptionKind::size:
      return "SIZE";
    case OptionKind::duration:
      return "TIME";
    case OptionKind::fraction:
      return "FRACTION";
  }
  return "VALUE";
}

std::string default_text(const OptionRow& row) {
  const std::string text = option_text(Options{}, row);
  return text.empty() ? std::string(row.empty) : text;
}

// "0 to 65535", with the unit: "1 to 64 ranks".
std::string allowed_text(const OptionRow& row) {
  if (row.kind == OptionKind::path) return "a path";
  if (row.kind == OptionKind::text) {
    return row.allowed.empty() ? "text" : std::string(row.allowed);
  }
  if (row.unit.empty()) return option_allowed(row);
  OptionRow plain = row;
  plain.field = &Options::ep;  // without "or auto", which comes after the unit
  plain.zero_is_auto = false;
  std::string text = fmt::format("{} {}", option_allowed(plain), row.unit);
  if (takes_auto(row)) text += ", or auto";
  return text;
}

std::string alias_list(const OptionRow& row, std::string_view quote) {
  std::vector<std::string> names;
  for (const std::string_view alias : row.aliases) {
    names.push_back(fmt::format("{}--{}{}", quote, alias, quote));
  }
  return join(names, ", ");
}

// `|` would end a cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

Json value_schema(const OptionRow& row) {
  if (row.kind == OptionKind::word) {
    Json words = Json::array();
    for (const std::string_view word : row.words) words.push(word);
    return Json::object({{"enum", std::move(words)}});
  }
  if (std::holds_alternative<std::string Options::*>(row.field)) {
    return Json::object({{"type", "string"}});
  }
  Json number = Json::object({{"type", "integer"}, {"minimum", row.min}, {"maximum", row.max}});
  if (row.kind == OptionKind::fraction) {
    number =
        Json::object({{"type", "number"},
                      {"minimum", static_cast<double>(row.min) / static_cast<double>(kWhole)},
                      {"maximum", static_cast<double>(row.max) / static_cast<double>(kWhole)}});
  }
  if (!takes_auto(row)) return number;
  return Json::object({{"anyOf", Json::array({Json::object({{"const", "auto"}}), number})}});
}

std::string origin_text(const Origin& origin) {
  if (origin.place.empty()) return source_name(origin.source);
  return fmt::format("{} {}", source_name(origin.source), origin.place);
}

// In quotes where the file's rules would cut it otherwise.
std::string file_text(const std::string& text) {
  const bool is_plain =
      text == trim(text) && text.find('#') == std::string::npos && text.substr(0, 1) != "\"";
  return is_plain ? text : fmt::format("\"{}\"", text);
}

}  // namespace

std::string option_help() {
  std::string out;
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (row.group != group) {
      group = row.group;
      out += fmt::format("{}{}:\n", out.empty() ? "" : "\n", group);
    }
    out += fmt::format("  --{} {}\n", row.name, placeholder(row));
    std::string text = fmt::format("{} Default: {}.", row.help, default_text(row));
    if (!row.aliases.empty()) text += fmt::format(" Also {}.", alias_list(row, ""));
    for (const std::string& line : wrapped(text, kColumns - 6)) out += "      " + line + "\n";
  }
  return out;
}

std::string default_config_file() {
  std::string out =
      "# Plimsoll's settings and their defaults. Remove the `#` before a setting to change it.\n"
      "# A flag (--port) wins over a variable (PLIMSOLL_PORT), which wins over this file.\n"
      "# Sizes and durations need a unit: 16GiB, 512MiB; 250ms, 10s, 5min. This file is generated\n"
      "# by `plimsoll config default`; `plimsoll config check` proves a changed one.\n";
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (row.group != group) {
      group = row.group;
      out += fmt::format("\n# ---- {} ----\n", group);
    }
    out += '\n';
    for (const std::string& line : wrapped(row.help, kColumns)) out += "# " + line + "\n";
    const bool empty = option_text(Options{}, row).empty();
    if (empty) out += fmt::format("# Empty: {}.\n", row.empty);
    if (!empty && !option_allowed(row).empty()) {
      out += fmt::format("# Allowed: {}.\n", allowed_text(row));
    }
    out += fmt::format("# {} ={}\n", row.name, empty ? "" : " " + default_text(row));
  }
  return out;
}

std::string option_reference() {
  std::string out =
      "# Settings\n\n"
      "Generated from the option table by `plimsoll config reference`.\n\n"
      "Every setting is a flag (`--port 8001`), an environment variable (`PLIMSOLL_PORT=8001`) and "
      "a line of the\nconfiguration file (`port = 8001`). A flag wins over the environment, which "
      "wins over the file. `plimsoll config show\n--origin` says where each value came from.\n\n"
      "*Change* is what `plimsoll reconfigure NAME=VALUE` does: **live** applies at once, "
      "**rolling** restarts one replica\nafter another, **full** restarts the deployment, "
      "**fixed** needs a new daemon.\n";
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (row.group != group) {
      group = row.group;
      out += fmt::format(
          "\n## {}\n\n| setting | values | default | change | meaning |\n|---|---|---|---|---|\n",
          group);
    }
    std::string meaning(row.help);
    if (!row.aliases.empty()) meaning += fmt::format(" Also {}.", alias_list(row, "`"));
    out += fmt::format("| `--{}` | {} | {} | {} | {} |\n", row.name, cell(allowed_text(row)),
                       cell(default_text(row)), effect_name(row.effect), cell(meaning));
  }
  return out;
}

Json option_schema() {
  Json properties = Json::object();
  for (const OptionRow& row : option_table()) {
    Json property = value_schema(row);
    std::string help(row.help);
    if (row.kind == OptionKind::size) help += " In bytes.";
    if (row.kind == OptionKind::duration) help += " In milliseconds.";
    property.set("description", std::move(help));
    property.set("default", option_json(Options{}, row));
    properties.set(row.name, std::move(property));
  }
  return Json::object({{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "Plimsoll settings"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"properties", std::move(properties)}});
}

std::string show_config(const OptionSet& set, ConfigShow show) {
  std::vector<std::string> lines;
  std::size_t widest = 0;
  for (const OptionRow& row : option_table()) {
    const std::string text = file_text(option_text(set.values, row));
    lines.push_back(fmt::format("{} ={}{}", row.name, text.empty() ? "" : " ", text));
    widest = std::max(widest, lines.back().size());
  }
  std::string out;
  std::size_t i = 0;
  for (const OptionRow& row : option_table()) {
    const std::string& line = lines[i++];
    if (show.origins) {
      out += fmt::format("{:{}}  # {}\n", line, widest, origin_text(set.origin(row.name)));
    } else {
      out += line + "\n";
    }
  }
  return out;
}

}  // namespace plimsoll
