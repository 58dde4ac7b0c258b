#include "shared/options/option_parse.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// Never the file of whoever runs the test.
class OptionParse : public ::testing::Test {
 protected:
  OptionParse() : file_(folder_.path() / "option_parse_test.conf") {
    EXPECT_TRUE(write_file(file_, ""));
    sources_.file = file_;
  }

  void config(std::string_view content) { ASSERT_TRUE(write_file(file_, content)); }
  std::string mistakes() {
    const Result<OptionSet> set = parse_options(sources_);
    if (set) return "";
    EXPECT_EQ(set.error().code, Code::invalid);
    return set.error().message;
  }

  TempFolder folder_;
  fs::path file_;
  OptionSources sources_;
};

TEST_F(OptionParse, NothingGivesTheDefaults) {
  const Result<OptionSet> set = parse_options(sources_);
  ASSERT_TRUE(set);
  EXPECT_EQ(set->values, Options{});
  EXPECT_TRUE(set->origins.empty());
}

TEST_F(OptionParse, ASwitchNeedsNoValue) {
  sources_.flags = {"--kv-prefault", "--port", "6"};
  const Result<OptionSet> set = parse_options(sources_);
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->values.kv_prefault, "on");
  EXPECT_EQ(set->values.port, 6);
  EXPECT_EQ(set->origin("kv-prefault").place, "--kv-prefault");
  sources_.flags = {"--kv-prefault", "off"};
  EXPECT_EQ(parse_options(sources_)->values.kv_prefault, "off");
}

TEST_F(OptionParse, FlagWinsOverEnvironmentOverFile) {
  config("port = 1\ntp = 2\ndp = 3\n");
  sources_.environment = {{"PLIMSOLL_PORT", "4"}, {"PLIMSOLL_TP", "5"}, {"HOME", "/"}};
  sources_.flags = {"--port=6"};
  const Result<OptionSet> set = parse_options(sources_);
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->values.port, 6);
  EXPECT_EQ(set->values.tp, 5);
  EXPECT_EQ(set->values.dp, 3);
  EXPECT_EQ(set->origin("port").place, "--port");
  EXPECT_EQ(set->origin("tp").place, "PLIMSOLL_TP");
  EXPECT_EQ(set->origin("dp").place, file_.string() + ":3");
  EXPECT_EQ(set->origin("dp").source, Source::file);
}

TEST_F(OptionParse, FileTakesCommentsQuotesBlankLinesAndCarriageReturns) {
  config("# all\n\n  model = \"/models/a b.gguf\"  # where\r\n\tport=9\nserved-model-name =\n");
  const Result<OptionSet> set = parse_options(sources_);
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->values.model, "/models/a b.gguf");
  EXPECT_EQ(set->values.port, 9);
}

TEST_F(OptionParse, AHashIsACommentOnlyAtTheStartOrAfterWhiteSpaceOutsideQuotes) {
  const std::pair<const char*, const char*> cases[] = {
      {"model = \"/models/a #1.gguf\"", "/models/a #1.gguf"},
      {"model = \"/models/#1.gguf\"  # the \"first\"", "/models/#1.gguf"},
      {"model = /models/a#1.gguf # why", "/models/a#1.gguf"},
      {"model =#1", "#1"},
      {"model = \"a\" b\"", "a\" b"},
      {"model = it\"s # why", "it\"s"},
      {"model = a=b", "a=b"},
      {"  # model = a\nmodel = b", "b"}};
  for (const auto& [text, model] : cases) {
    config(text);
    const Result<OptionSet> set = parse_options(sources_);
    ASSERT_TRUE(set) << text << ": " << set.error().message;
    EXPECT_EQ(set->values.model, model) << text;
  }
  config("model = \"a #1\nserved-model-name = # none\nport # = 9\n= 3\n");
  const std::string f = file_.string();
  EXPECT_EQ(mistakes(), f + ":1: model: \"a #1 has no closing quote before its end or a comment\n" +
                            f + ":3: 'port # = 9' is not `name = value`\n" + f +
                            ":4: '= 3' is not `name = value`");
}

TEST_F(OptionParse, FlagsTakeAliasesUnderscoresAndNegativeValues) {
  sources_.flags = {"--tensor_parallel_size", "2", "--max-model-len=4096", "--tp", "3"};
  const Result<OptionSet> set = parse_options(sources_);
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->values.tp, 3);  // the last counts
  EXPECT_EQ(set->values.context_length, 4096);
  sources_.flags = {"--port", "-5"};
  EXPECT_EQ(mistakes(), "--port: -5 is out of range (allowed: 0 to 65535)");
}

TEST_F(OptionParse, AFlagThatIsASwitchMeansOnAlone) {
  const auto value = [&](std::vector<std::string> flags) {
    sources_.flags = std::move(flags);
    const Result<OptionSet> set = parse_options(sources_);
    return set ? set->values.disable_radix_cache : set.error().message;
  };
  EXPECT_EQ(value({}), "off");
  EXPECT_EQ(value({"--disable-radix-cache"}), "on");
  EXPECT_EQ(value({"--disable-radix-cache", "--tp", "1"}), "on");
  EXPECT_EQ(value({"--disable-radix-cache", "off"}), "off");
  EXPECT_EQ(value({"--disable-radix-cache=on"}), "on");
  EXPECT_EQ(value({"--disable-radix-cache=yes"}),
            "--disable-radix-cache: 'yes' is not one of the words (allowed: off or on)");
}

TEST_F(OptionParse, ReportsEveryMistakeWithItsPlace) {
  config("prot = 80\ntp=99\nport = 1\nport = 2\n[x]\nnonsense\nstep-time-max=250\n");
  sources_.environment = {{"PLIMSOLL_TPP", "3"}, {"PLIMSOLL_DP", "x"}};
  sources_.flags = {"--prt", "5", "--dp", "--port", "x", "stray", "-x", "--", "--loglevel=info"};
  const std::string f = file_.string();
  EXPECT_EQ(mistakes(),
            f + ":1: unknown setting 'prot'; did you mean port?\n" +  //
                f + ":2: tp: 99 is out of range (allowed: 1 to 64, or auto)\n" + f +
                ":4: 'port' is set a second time (first in line 3)\n" + f +
                ":5: there are no sections; write `name = value`\n" + f +
                ":6: 'nonsense' is not `name = value`\n" + f +
                ":7: step-time-max: '250' needs a unit: ms, s, min or h (250ms, 10s, 5min) "
                "(allowed: 1ms to 1min)\n"
                "PLIMSOLL_TPP: unknown variable; did you mean PLIMSOLL_TP?\n"
                "PLIMSOLL_DP: 'x' is not a whole number (allowed: 1 to 64, or auto)\n"
                "--prt: unknown option; did you mean --port?\n"
                "--dp: needs a value (allowed: 1 to 64, or auto)\n"
                "--port: 'x' is not a whole number (allowed: 0 to 65535)\n"
                "stray: not an option; options begin with --\n"
                "-x: not an option; options begin with --\n"
                "--: not an option; options begin with --\n"
                "--loglevel: unknown option; did you mean --log-level?");
}

TEST_F(OptionParse, AnAliasInTheFileIsTheSameSetting) {
  config("tp = 2\ntensor-parallel-size = 2\n");
  EXPECT_NE(mistakes().find("set a second time (first in line 1)"), std::string::npos);
}

TEST_F(OptionParse, TwoVariablesForOneOptionAreAMistake) {
  sources_.environment = {{"PLIMSOLL_TP", "3"}, {"PLIMSOLL_TENSOR_PARALLEL_SIZE", "4"}};
  EXPECT_EQ(mistakes(),
            "PLIMSOLL_TENSOR_PARALLEL_SIZE: 'tp' is set by PLIMSOLL_TP, too; unset one of them");
}

TEST_F(OptionParse, AFileThatIsNoTextIsOneMistakeAndNeverPrintedRaw) {
  config(std::string("tp = 1\n\x1b[31m\0\nx\ny", 16));
  EXPECT_EQ(mistakes(), file_.string() +
                            ":2: this is no text (it has a byte 0x1b); a configuration file has "
                            "lines `name = value`");
  config("");
  sources_.flags = {"--tp=\x1b[31m"};
  EXPECT_EQ(mistakes(), "--tp: '\\x1b[31m' is not a whole number (allowed: 1 to 64, or auto)");
}

TEST_F(OptionParse, AMissingFileIsAMistakeWhereItWasNamed) {
  sources_.file = "/nowhere/plimsoll.conf";
  sources_.flags = {"--tp=0"};
  EXPECT_NE(mistakes().find("/nowhere/plimsoll.conf"), std::string::npos);
  EXPECT_NE(mistakes().find("--tp: 0 is out of range"), std::string::npos);
}

TEST_F(OptionParse, TheCacheFolderOfTheScriptsIsNoOption) {
  sources_.environment = {{"PLIMSOLL_CACHE", "/c"}};
  EXPECT_EQ(mistakes(), "");
}

TEST_F(OptionParse, ProcessSourcesTakeOutTheConfigFile) {
  const std::vector<const char*> argv = {"plimsolld", "--tp", "2", "--config", "/a.conf", "--dp=1"};
  const Result<OptionSources> sources = process_sources(static_cast<int>(argv.size()), argv.data());
  ASSERT_TRUE(sources);
  EXPECT_EQ(sources->file, fs::path("/a.conf"));
  EXPECT_EQ(sources->flags, (std::vector<std::string>{"--tp", "2", "--dp=1"}));
  const std::vector<const char*> cut = {"plimsolld", "--config"};
  EXPECT_FALSE(process_sources(2, cut.data()));
}

}  // namespace
}  // namespace plimsoll
