#include "shared/options/option_print.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/options/option_parse.h"
#include "shared/options/option_table.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

void expect_golden(const std::filesystem::path& path, const std::string& content) {
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file(path, content)) << path;
  }
  EXPECT_EQ(read_test_file(path), content) << "run with UPDATE_GOLDEN=1 and read the difference";
}

std::filesystem::path configs() { return golden_path("").parent_path() / "../../configs"; }

TEST(OptionPrint, TheCommittedDefaultFileIsCurrent) {
  expect_golden(configs() / "default.conf", default_config_file());
}

TEST(OptionPrint, TheCommittedReferenceIsCurrent) {
  expect_golden(configs() / "reference.md", option_reference());
}

TEST(OptionPrint, HelpIsAsRecorded) {
  expect_golden(golden_path("options/help.txt"), option_help());
}

TEST(OptionPrint, TheSchemaIsAsRecorded) {
  expect_golden(golden_path("options/schema.json"), dump_json(option_schema(), 2) + "\n");
}

TEST(OptionPrint, HelpKeepsWithinATerminal) {
  for (const std::string_view line : split(option_help(), '\n'))
    EXPECT_LE(line.size(), 100U) << line;
}

TEST(OptionPrint, TheDefaultFileReadsAsTheDefaultsAlsoUncommented) {
  const Result<OptionSet> as_is = parse_option_text(default_config_file(), "default.conf");
  ASSERT_TRUE(as_is) << as_is.error().message;
  EXPECT_TRUE(as_is->origins.empty());
  std::string settings;
  const std::string file = default_config_file();
  for (const std::string_view line : split(file, '\n')) {
    const std::size_t equals = line.find(" =");
    if (equals == std::string_view::npos || line.size() < 2) continue;
    if (find_option(line.substr(2, equals - 2)) != nullptr) {
      settings += std::string(line.substr(2)) + "\n";
    }
  }
  const Result<OptionSet> uncommented = parse_option_text(settings, "default.conf");
  ASSERT_TRUE(uncommented) << uncommented.error().message;
  EXPECT_EQ(uncommented->values, Options{});
  EXPECT_EQ(uncommented->origins.size(), option_table().size());
}

TEST(OptionPrint, ShownConfigurationReadsBack) {
  OptionSet set;
  set.values.device_memory = 3 * kGiB;
  set.values.model = "/m.gguf";
  set.origins["device-memory"] = {Source::flag, "--device-memory"};
  for (const char* model : {"/m.gguf", "/models/a #1.gguf", "\"m\"", " m ", "#1"}) {
    set.values.model = model;
    for (const bool origins : {false, true}) {
      const Result<OptionSet> back = parse_option_text(show_config(set, {.origins = origins}), "x");
      ASSERT_TRUE(back) << back.error().message;
      EXPECT_EQ(back->values, set.values) << model;
    }
  }
  EXPECT_NE(show_config(set, {.origins = true}).find("# flag --device-memory\n"),
            std::string::npos);
}

}  // namespace
}  // namespace plimsoll
