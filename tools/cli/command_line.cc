#include "tools/cli/command_line.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/options/option_print.h"

namespace plimsoll {
namespace {

constexpr std::string_view kFolderFlags[] = {"runtime-dir", "state-dir"};

constexpr std::string_view kCommonHelp =
    "Every verb takes:\n"
    "  --runtime-dir DIR    folder of the daemon's sockets; names the instance that is meant\n"
    "  --state-dir DIR      folder of its records and logs\n"
    "  --config FILE        configuration file\n"
    "  --json               answer in JSON\n"
    "  --help               show how to call it\n";

Error unknown_verb(const std::string& word) {
  std::vector<std::string_view> names;
  for (const Verb& verb : verb_table()) names.push_back(verb.name);
  const auto longer = std::ranges::find_if(
      names, [&](std::string_view name) { return word.size() > 1 && name.starts_with(word); });
  const std::string meant = longer != names.end() ? std::string(*longer) : nearest(word, names);
  return invalid(fmt::format("unknown verb '{}'{}; `plimsoll help` lists all", word,
                             meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
}

bool is_flag(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9');
}

class Parser {
 public:
  explicit Parser(std::span<const std::string> words) : words_(words) {}

  Result<CommandLine> parse() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (!only_arguments_ && word == "--") {
        only_arguments_ = true;
      } else if (!only_arguments_ && is_flag(word)) {
        TRY(take_flag(word));
      } else if (verb_ == nullptr) {
        verb_ = find_verb(word);
        if (verb_ == nullptr) return unknown_verb(word);
        line_.verb = word;
      } else {
        line_.arguments.push_back(word);
      }
    }
    TRY(check());
    return std::move(line_);
  }

 private:
  Status take_flag(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string written = word.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    const std::string name = written.substr(written.starts_with("--") ? 2 : 1);
    if (written == "--json" || written == "--help" || written == "-h") {
      if (value) return invalid(fmt::format("{} takes no value", written));
      (written == "--json" ? line_.json : line_.help) = true;
      return {};
    }
    if (verb_ == nullptr && written == "--version") {
      verb_ = find_verb("version");
      line_.verb = "version";
      return {};
    }
    if (written == "--config") {
      line_.config = TRY(value_of(written, std::move(value), "FILE"));
      return {};
    }
    for (const VerbFlag& flag : verb_ == nullptr ? std::span<const VerbFlag>{} : verb_->flags) {
      if (written == fmt::format("--{}", flag.name) ||
          (!flag.letter.empty() && written == fmt::format("-{}", flag.letter))) {
        return take_own(flag, written, std::move(value));
      }
    }
    const bool is_folder = std::ranges::find(kFolderFlags, name) != std::end(kFolderFlags);
    if (is_folder) {
      const std::string folder = TRY(value_of(written, std::move(value), "DIR"));
      line_.option_flags.insert(line_.option_flags.end(), {written, folder});
      return {};
    }
    if (verb_ == nullptr) {
      return invalid(fmt::format("{} stands before the verb; write it after", written));
    }
    if (!verb_->takes_options) return unknown_flag(written);
    line_.option_flags.push_back(word);
    if (!value && at_ < words_.size() && !is_flag(words_[at_])) {
      line_.option_flags.push_back(words_[at_++]);
    }
    return {};
  }

  Status take_own(const VerbFlag& flag, const std::string& written,
                  std::optional<std::string> value) {
    if (flag.value.empty() && value) return invalid(fmt::format("{} takes no value", written));
    if (flag.is_argument) {
      line_.arguments.push_back(TRY(value_of(written, std::move(value), flag.value)));
      return {};
    }
    line_.flags[std::string(flag.name)] =
        flag.value.empty() ? "" : TRY(value_of(written, std::move(value), flag.value));
    return {};
  }

  Result<std::string> value_of(const std::string& written, std::optional<std::string> value,
                               std::string_view what) {
    if (value) return *std::move(value);
    if (at_ < words_.size() && !is_flag(words_[at_])) return words_[at_++];
    return invalid(fmt::format("{} needs a value: {} {}", written, written, what));
  }

  Error unknown_flag(const std::string& written) const {
    std::vector<std::string> names = {"--json", "--help", "--config", "--runtime-dir",
                                      "--state-dir"};
    for (const VerbFlag& flag : verb_->flags) names.push_back(fmt::format("--{}", flag.name));
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string meant = nearest(written, views);
    return not_found(fmt::format("{} takes no {}{}", verb_->name, written,
                                 meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
  }

  Status check() const {
    if (line_.help) return {};
    if (verb_ == nullptr) return invalid("no verb is given");
    const std::size_t count = line_.arguments.size();
    if (count < verb_->arguments_min) {
      return invalid(
          fmt::format("{0} needs an argument: plimsoll {0} {1}", verb_->name, verb_->arguments));
    }
    if (count > verb_->arguments_max) {
      return invalid(fmt::format("{}: '{}' is too much; the call is: plimsoll {} {}", verb_->name,
                                 line_.arguments[verb_->arguments_max], verb_->name,
                                 verb_->arguments));
    }
    return {};
  }

  std::span<const std::string> words_;
  std::size_t at_ = 0;
  const Verb* verb_ = nullptr;
  bool only_arguments_ = false;
  CommandLine line_;
};

}  // namespace

Result<CommandLine> parse_command_line(std::span<const std::string> words) {
  return Parser(words).parse();
}

std::string usage() {
  std::string text = "plimsoll: serves large language models from supervised processes\n\n";
  for (const Verb& verb : verb_table()) {
    text += fmt::format("  plimsoll {:<12} {}\n", verb.name, verb.summary);
  }
  text += "\n";
  text += kCommonHelp;
  text +=
      "\nExit codes: 0 done · 1 failed · 2 wrong usage · 3 the plan does not fit · 4 not running\n"
      "75 try again later · 78 bad configuration\n";
  return text;
}

std::string verb_usage(const Verb& verb) {
  std::string text =
      fmt::format("plimsoll {} {}\n  {}\n\n", verb.name, verb.arguments, verb.summary);
  for (const VerbFlag& flag : verb.flags) {
    const std::string letter = flag.letter.empty() ? "" : fmt::format("-{}, ", flag.letter);
    text += fmt::format("  {:<20} {}\n", fmt::format("{}--{} {}", letter, flag.name, flag.value),
                        flag.help);
  }
  if (!verb.flags.empty()) text += "\n";
  text += kCommonHelp;
  if (verb.takes_options) text += "\nOptions of a deployment:\n\n" + option_help();
  return text;
}

}  // namespace plimsoll
