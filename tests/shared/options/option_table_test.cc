#include "shared/options/option_table.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

TEST(OptionTable, NamesAndAliasesAreUniqueKebabCase) {
  std::set<std::string_view> seen;
  for (const OptionRow& row : option_table()) {
    EXPECT_TRUE(seen.insert(row.name).second) << row.name;
    for (const std::string_view alias : row.aliases)
      EXPECT_TRUE(seen.insert(alias).second) << alias;
  }
  for (const std::string_view name : seen) {
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"),
              std::string_view::npos)
        << name;
  }
}

TEST(OptionTable, EveryDefaultIsAllowed) {
  for (const OptionRow& row : option_table()) {
    Options options;
    const std::string text = option_text(Options{}, row);
    const Status stored = set_option(options, row, text);
    EXPECT_TRUE(stored) << row.name << ": " << (stored ? "" : stored.error().message);
    EXPECT_EQ(options, Options{}) << row.name;
  }
}

TEST(OptionTable, EveryRowHasAFieldOfItsOwn) {
  // A value that differs from the default in one row changes no other row.
  for (const OptionRow& row : option_table()) {
    Options options;
    std::string other = "x";
    if (row.kind == OptionKind::word) other = row.words[row.words[0] == option_text(options, row)];
    if (row.kind == OptionKind::count) other = std::to_string(row.max);
    if (row.kind == OptionKind::size) other = format_exact_bytes(row.max);
    if (row.kind == OptionKind::duration) other = format_duration(milliseconds(row.max));
    if (row.kind == OptionKind::fraction) other = format_fraction(row.max);
    if (row.name == "devices") other = "cpu";
    if (row.name == "assume") other = "free=1GiB";
    ASSERT_TRUE(set_option(options, row, other)) << row.name;
    const OptionDiff diff = diff_options(Options{}, options);
    ASSERT_EQ(diff.changes.size(), 1U) << row.name;
    EXPECT_EQ(diff.changes[0].name, row.name);
    EXPECT_EQ(diff.changes[0].after, other);
  }
}

TEST(OptionTable, HelpIsOneSentence) {
  for (const OptionRow& row : option_table()) {
    EXPECT_EQ(row.help.back(), '.') << row.name;
    EXPECT_EQ(row.help.find('\n'), std::string_view::npos) << row.name;
  }
}

TEST(OptionTable, FindsAliasesAndUnderscores) {
  ASSERT_NE(find_option("tensor_parallel_size"), nullptr);
  EXPECT_EQ(find_option("tensor_parallel_size")->name, "tp");
  EXPECT_EQ(find_option("MAX_MODEL_LEN")->name, "context-length");
  EXPECT_EQ(find_option("no-such-thing"), nullptr);
  EXPECT_EQ(nearest_option("prot"), "port");
  EXPECT_EQ(environment_name(*find_option("max-running-requests")),
            "PLIMSOLL_MAX_RUNNING_REQUESTS");
}

TEST(OptionTable, TheLiveSettingsAreLive) {
  for (const OptionRow& row : option_table()) {
    const bool live = row.name == "log-level" || row.name == "max-queued-requests" ||
                      row.name == "step-time-max" || row.name == "hold-deadline";
    EXPECT_EQ(row.effect == Effect::live, live) << row.name;
  }
}

}  // namespace
}  // namespace plimsoll
