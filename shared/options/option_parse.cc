#include "shared/options/option_parse.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "shared/base/file.h"
#include "shared/base/shown_text.h"
#include "shared/base/text.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

namespace po = boost::program_options;

constexpr std::string_view kEnvironmentPrefix = "PLIMSOLL_";
constexpr std::size_t kConfigFileBytesMax = 1024 * 1024;
constexpr std::string_view kConfigFlag = "--config";

po::options_description described_options() {
  po::options_description description;
  for (const OptionRow& row : option_table()) {
    const auto add = [&](std::string_view name) {
      description.add_options()(std::string(name).c_str(), po::value<std::string>(),
                                std::string(row.help).c_str());
    };
    add(row.name);
    for (const std::string_view alias : row.aliases) add(alias);
  }
  return description;
}

// Applies assignments in order of precedence and keeps every mistake.
class Collector {
 public:
  void assign(std::string_view name, std::string_view text, Source source, std::string place) {
    const OptionRow* row = find_option(name);
    if (row == nullptr) {
      unknown(name, source, place);
      return;
    }
    const Status stored = set_option(set_.values, *row, with_earlier(*row, text, source));
    if (!stored) {
      const std::string subject = source == Source::file ? fmt::format("{}: ", row->name) : "";
      mistake(fmt::format("{}: {}{}", place, subject, stored.error().message));
      return;
    }
    set_.origins[std::string(row->name)] = {source, std::move(place)};
  }

  void mistake(std::string_view text) { mistakes_.push_back(shown(text)); }

  Result<OptionSet> take() {
    if (!mistakes_.empty()) return invalid(join(mistakes_, "\n"));
    return std::move(set_);
  }

 private:
  // Of an option that repeats: what the same source has said before comes first.
  std::string with_earlier(const OptionRow& row, std::string_view text, Source source) const {
    const std::string before = option_text(set_.values, row);
    if (!row.repeats || before.empty() || set_.origin(row.name).source != source) {
      return std::string(text);
    }
    return before + "," + std::string(text);
  }

  void unknown(std::string_view name, Source source, const std::string& place) {
    std::string meant = nearest_option(name);
    const OptionRow* row = meant.empty() ? nullptr : find_option(meant);
    if (row != nullptr && source == Source::environment) meant = environment_name(*row);
    if (row != nullptr && source == Source::flag) meant.insert(0, "--");
    const std::string hint = meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
    switch (source) {
      case Source::flag:
        mistake(fmt::format("{}: unknown option{}", place, hint));
        break;
      case Source::environment:
        mistake(fmt::format("{}: unknown variable{}", place, hint));
        break;
      default:
        mistake(fmt::format("{}: unknown setting '{}'{}", place, name, hint));
        break;
    }
  }

  OptionSet set_;
  std::vector<std::string> mistakes_;
};

bool is_blank(char c) { return trim(std::string_view(&c, 1)).empty(); }

// A byte that no text has.
bool is_no_text(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && !is_blank(c)) || byte == 0x7f;
}

// Where a comment begins: at a `#` that is first or after white space; else the text's end.
std::size_t comment_begin(std::string_view text) {
  for (std::size_t at = text.find('#'); at != std::string_view::npos; at = text.find('#', at + 1)) {
    if (at == 0 || is_blank(text[at - 1])) return at;
  }
  return text.size();
}

// What stands after the `=`. Quotes keep white space and `#`: `"a #b"` is a #b.
Result<std::string_view> file_value(std::string_view text) {
  const std::string_view value = trim(text);
  // A `#` right after the `=` is no comment.
  if (value.empty() || value.front() != '"') {
    return text.substr(0, 1) == "#" ? trim(text.substr(0, 1 + comment_begin(text.substr(1))))
                                    : trim(text.substr(0, comment_begin(text)));
  }
  // A quote closes where nothing but a comment follows.
  for (std::size_t at = value.find('"', 1); at != std::string_view::npos;
       at = value.find('"', at + 1)) {
    const std::string_view rest = value.substr(at + 1);
    if (rest.empty() || (is_blank(rest.front()) && trim(rest).substr(0, 1) == "#")) {
      return value.substr(1, at - 1);
    }
  }
  return invalid(fmt::format("{} has no closing quote before its end or a comment", value));
}

// Line by line, so that every mistake has its line and none hides the next. Not by Boost, which
// cuts a value at any `#`.
void read_lines(std::string_view content, const std::string& file, Collector& collector) {
  const auto no_text = std::ranges::find_if(content, is_no_text);
  if (no_text != content.end()) {
    const auto line = std::count(content.begin(), no_text, '\n') + 1;
    return collector.mistake(
        fmt::format("{}:{}: this is no text (it has a byte {:#04x}); a configuration file has "
                    "lines `name = value`",
                    file, line, static_cast<unsigned char>(*no_text)));
  }
  std::map<std::string, std::size_t, std::less<>> line_of;  // by option name
  std::size_t number = 0;
  for (const std::string_view line : split(content, '\n')) {
    const std::string place = fmt::format("{}:{}", file, ++number);
    const std::string_view text = trim(line);
    if (text.empty() || text.front() == '#') continue;
    if (text.front() == '[') {
      collector.mistake(fmt::format("{}: there are no sections; write `name = value`", place));
      continue;
    }
    const std::size_t equals = text.find('=');
    const std::string_view written = trim(text.substr(0, equals));
    if (equals == std::string_view::npos || written.empty() ||
        comment_begin(written) < written.size()) {
      collector.mistake(fmt::format("{}: '{}' is not `name = value`", place, text));
      continue;
    }
    const OptionRow* row = find_option(written);
    const std::string name(row == nullptr ? written : row->name);
    const auto [first, is_new] = line_of.emplace(name, number);
    if (!is_new) {
      collector.mistake(fmt::format("{}: '{}' is set a second time (first in line {})", place,
                                    written, first->second));
      continue;
    }
    const Result<std::string_view> value = file_value(text.substr(equals + 1));
    if (value) {
      collector.assign(written, *value, Source::file, place);
    } else {
      collector.mistake(fmt::format("{}: {}: {}", place, name, value.error().message));
    }
  }
}

void read_config_file(const OptionSources& sources, Collector& collector) {
  namespace fs = std::filesystem;
  std::error_code failure;
  const fs::path path = sources.file ? *sources.file : default_folders().config_file;
  if (!sources.file && !fs::exists(path, failure)) return;
  const Result<std::string> content = read_file(path, kConfigFileBytesMax);
  if (!content) {
    collector.mistake(fmt::format("configuration file: {}", content.error().message));
    return;
  }
  read_lines(*content, path.string(), collector);
}

void read_environment(const OptionSources& sources, Collector& collector) {
  std::map<std::string_view, std::string_view> variable_of;  // by option name
  for (const auto& [variable, text] : sources.environment) {
    if (variable.substr(0, kEnvironmentPrefix.size()) != kEnvironmentPrefix) continue;
    if (variable == "PLIMSOLL_CACHE" || variable == "PLIMSOLL_CONFIG") continue;
    const std::string name = variable.substr(kEnvironmentPrefix.size());
    if (const OptionRow* row = find_option(name)) {
      const auto [first, is_new] = variable_of.emplace(row->name, variable);
      if (!is_new) {
        collector.mistake(fmt::format("{}: '{}' is set by {}, too; unset one of them", variable,
                                      row->name, first->second));
        continue;
      }
    }
    collector.assign(name, text, Source::environment, variable);
  }
}

bool begins_option(std::string_view token) {
  // "-5" is a value.
  return token.size() > 1 && token[0] == '-' && (token[1] < '0' || token[1] > '9');
}

// One flag and its value at a time, so that one mistake does not hide the next.
void read_flags(const OptionSources& sources, const po::options_description& description,
                Collector& collector) {
  namespace style = po::command_line_style;
  const std::vector<std::string>& flags = sources.flags;
  for (std::size_t i = 0; i < flags.size();) {
    std::vector<std::string> tokens = {flags[i++]};
    if (!begins_option(tokens[0]) || tokens[0].substr(0, 2) != "--" || tokens[0] == "--") {
      collector.mistake(fmt::format("{}: not an option; options begin with --", tokens[0]));
      continue;
    }
    const std::string written = tokens[0].substr(0, tokens[0].find('='));
    const bool has_value = written.size() < tokens[0].size();
    if (!has_value && i < flags.size() && !begins_option(flags[i])) tokens.push_back(flags[i++]);
    const OptionRow* row = find_option(std::string_view(written).substr(2));
    if (row != nullptr && !has_value && tokens.size() == 1 && !row->alone.empty()) {
      tokens.emplace_back(row->alone);
    }
    if (row != nullptr) tokens[0].replace(2, written.size() - 2, row->name);
    if (row != nullptr && !row->bare.empty() && tokens.size() == 1 && !has_value) {
      collector.assign(row->name, row->bare, Source::flag, written);
      continue;
    }
    try {
      const po::parsed_options parsed =
          po::command_line_parser(tokens)
              .options(description)
              .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
              .allow_unregistered()
              .run();
      const std::vector<std::string>& value = parsed.options.front().value;
      collector.assign(std::string_view(written).substr(2), value.empty() ? "" : value.front(),
                       Source::flag, written);
    } catch (const po::error&) {
      const std::string allowed = row == nullptr ? "" : option_allowed(*row);
      collector.mistake(fmt::format("{}: needs a value{}", written,
                                    allowed.empty() ? "" : fmt::format(" (allowed: {})", allowed)));
    }
  }
}

}  // namespace

Result<OptionSources> process_sources(int argc, const char* const* argv) {
  OptionSources sources;
  for (const char* const* entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::size_t equals = variable.find('=');
    if (variable.substr(0, kEnvironmentPrefix.size()) != kEnvironmentPrefix) continue;
    if (equals == std::string_view::npos) continue;
    sources.environment.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
    if (variable.substr(0, equals) == "PLIMSOLL_CONFIG") {
      sources.file = std::filesystem::path(variable.substr(equals + 1));
    }
  }
  for (int i = 1; i < argc; ++i) {
    const std::string_view token(argv[i]);
    if (token == kConfigFlag) {
      if (i + 1 == argc) return invalid("--config: needs the path of a configuration file");
      sources.file = std::filesystem::path(argv[++i]);
    } else if (token.substr(0, kConfigFlag.size() + 1) == "--config=") {
      sources.file = std::filesystem::path(token.substr(kConfigFlag.size() + 1));
    } else {
      sources.flags.emplace_back(token);
    }
  }
  return sources;
}

Result<OptionSet> parse_options(const OptionSources& sources) {
  const po::options_description description = described_options();
  Collector collector;
  read_config_file(sources, collector);
  read_environment(sources, collector);
  read_flags(sources, description, collector);
  return collector.take();
}

Result<OptionSet> parse_option_text(std::string_view content, const std::string& file) {
  Collector collector;
  read_lines(content, file, collector);
  return collector.take();
}

}  // namespace plimsoll
