#include "shared/options/option_set.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Assignments = std::vector<std::pair<std::string, std::string>>;

OptionSet example() {
  OptionSet set;
  set.values.port = 8001;
  set.values.device_memory = 3 * kGiB;
  set.values.step_time_max = milliseconds(125);
  set.origins["port"] = {Source::flag, "--port"};
  set.origins["device-memory"] = {Source::file, "plimsoll.conf:4"};
  return set;
}

TEST(OptionSet, JsonRoundTripsValuesAndOrigins) {
  const OptionSet set = example();
  const Json json = option_set_to_json(set);
  EXPECT_EQ(dump_json(*json.find("port")), R"({"value":8001,"source":"flag","place":"--port"})");
  EXPECT_EQ(dump_json(*json.find("context-length")), R"({"value":"auto","source":"default"})");
  const Result<OptionSet> back = option_set_from_json(*parse_json(dump_json(json)));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->values, set.values);
  EXPECT_EQ(option_set_to_json(*back), json);
}

TEST(OptionSet, JsonMistakesComeAllAtOnce) {
  const Json json = *parse_json(
      R"({"prot": {"value": 1}, "tp": {"value": 0}, "dp": 2, "port": {"value": 1, "source": "moon"},
          "host": {"value": "h", "source": "flag", "place": 3}})");
  const Result<OptionSet> set = option_set_from_json(json);
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, Code::invalid);
  EXPECT_EQ(set.error().message,
            "unknown option 'prot'; did you mean 'port'?\n"
            "tp: 0 is out of range (allowed: 1 to 64, or auto)\n"
            "dp: needs an object with a \"value\"\n"
            "port: \"source\" is none that we know\n"
            "host: \"place\" must be a string");
  EXPECT_FALSE(option_set_from_json(Json(3)));
}

TEST(OptionSet, AChangeThatSetsAnOptionTwiceIsAMistake) {
  const auto changed = change_options(example(), Assignments{{"tp", "1"}, {"tp-size", "2"}});
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().message, "tp: it is set twice in this change");
}

TEST(OptionSet, ChangesKeepTheRestAndSayReconfigured) {
  const Result<OptionSet> changed =
      change_options(example(), Assignments{{"tp_size", "2"}, {"log-level", "debug"}});
  ASSERT_TRUE(changed) << changed.error().message;
  EXPECT_EQ(changed->values.tp, 2);
  EXPECT_EQ(changed->values.log_level, "debug");
  EXPECT_EQ(changed->values.port, 8001);
  EXPECT_EQ(changed->origin("tp").source, Source::reconfigured);
  EXPECT_EQ(changed->origin("port").source, Source::flag);
  EXPECT_EQ(changed->origin("host").source, Source::built_in);
}

TEST(OptionSet, ChangesReportEveryMistake) {
  const Result<OptionSet> changed =
      change_options(example(), Assignments{{"tpp", "2"}, {"port", "x"}, {"dp", "2"}});
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().message,
            "unknown option 'tpp'; did you mean 'tp'?\n"
            "port: 'x' is not a whole number (allowed: 0 to 65535)");
}

}  // namespace
}  // namespace plimsoll
