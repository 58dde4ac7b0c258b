#include "tools/cli/command_line.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Words = std::vector<std::string>;

std::string mistake(const Words& words) {
  const Result<CommandLine> line = parse_command_line(words);
  EXPECT_FALSE(line);
  return line ? "" : line.error().message;
}

CommandLine parsed(const Words& words) {
  const Result<CommandLine> line = parse_command_line(words);
  EXPECT_TRUE(line) << line.error().message;
  return line ? *line : CommandLine{};
}

TEST(CommandLine, FlagsOfAllVerbsMayStandAnywhere) {
  const CommandLine line =
      parsed({"--runtime-dir", "/r", "status", "--json", "--state-dir=/s", "--config", "/c"});
  EXPECT_EQ(line.verb, "status");
  EXPECT_TRUE(line.json);
  EXPECT_EQ(line.config, "/c");
  EXPECT_EQ(line.option_flags, (Words{"--runtime-dir", "/r", "--state-dir", "/s"}));
}

TEST(CommandLine, OptionsAreCollectedAsTheyAre) {
  const CommandLine line = parsed({"start", "--model", "m.gguf", "--tp=2", "--port", "-1"});
  EXPECT_EQ(line.option_flags, (Words{"--model", "m.gguf", "--tp=2", "--port", "-1"}));
  EXPECT_TRUE(line.arguments.empty());
}

TEST(CommandLine, AVerbsOwnFlagsAreKnownByNameAndLetter) {
  EXPECT_TRUE(parsed({"stop", "--all"}).has("all"));
  const CommandLine logs = parsed({"logs", "-f", "-n", "7"});
  EXPECT_TRUE(logs.has("follow"));
  EXPECT_EQ(logs.flags.at("lines"), "7");
  EXPECT_EQ(parsed({"chat", "--max-tokens=9", "hi"}).flags.at("max-tokens"), "9");
}

TEST(CommandLine, WhatFollowsTwoDashesIsAnArgument) {
  EXPECT_EQ(parsed({"chat", "--", "--why?"}).arguments, (Words{"--why?"}));
}

TEST(CommandLine, UnknownVerbsNameTheNearest) {
  EXPECT_NE(mistake({"statsu"}).find("did you mean status?"), std::string::npos);
  EXPECT_NE(mistake({"stat"}).find("did you mean status?"), std::string::npos);
  EXPECT_EQ(mistake({"nonsense"}).find("did you mean"), std::string::npos);
  EXPECT_NE(mistake({"stop", "--al"}).find("did you mean --all?"), std::string::npos);
}

TEST(CommandLine, SaysWhatIsMissingOrTooMuch) {
  EXPECT_NE(mistake({"diff", "1", "2", "3"}).find("[[A] B]"), std::string::npos);
  EXPECT_NE(mistake({"stop", "now"}).find("'now' is too much"), std::string::npos);
  EXPECT_NE(mistake({"chat", "--max-tokens"}).find("needs a value"), std::string::npos);
  EXPECT_NE(mistake({"stop", "--all=1"}).find("takes no value"), std::string::npos);
  EXPECT_NE(mistake({"--tp", "2", "start"}).find("before the verb"), std::string::npos);
  EXPECT_FALSE(mistake({"--json"}).empty());
}

TEST(CommandLine, HelpNeedsNothingElse) {
  EXPECT_TRUE(parsed({"--help"}).help);
  EXPECT_TRUE(parsed({"reconfigure", "-h"}).help);
}

TEST(CommandLine, EveryVerbIsInTheUsageAndHasItsOwn) {
  for (const Verb& verb : verb_table()) {
    EXPECT_NE(usage().find("plimsoll " + std::string(verb.name)), std::string::npos);
    const std::string own = verb_usage(verb);
    EXPECT_NE(own.find(verb.summary), std::string::npos);
    for (const VerbFlag& flag : verb.flags) {
      EXPECT_NE(own.find("--" + std::string(flag.name)), std::string::npos);
    }
    EXPECT_EQ(verb.takes_options, own.find("--device-memory") != std::string::npos) << verb.name;
  }
}

}  // namespace
}  // namespace plimsoll
