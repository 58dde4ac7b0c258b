#include "shared/options/option_value.h"

#include <string>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::string mistake(std::string_view name, std::string_view text) {
  Options options;
  const Status stored = set_option(options, *find_option(name), text);
  EXPECT_EQ(options, Options{}) << "a refused value must change nothing";
  return stored ? "" : stored.error().message;
}

TEST(OptionValue, SaysWhatIsAllowed) {
  EXPECT_EQ(mistake("port", "99999"), "99999 is out of range (allowed: 0 to 65535)");
  EXPECT_EQ(mistake("tp", "two"), "'two' is not a whole number (allowed: 1 to 64, or auto)");
  EXPECT_EQ(mistake("tp", "0"), "0 is out of range (allowed: 1 to 64, or auto)");
  EXPECT_EQ(mistake("port", "auto"), "'auto' is not a whole number (allowed: 0 to 65535)");
  EXPECT_EQ(mistake("log-level", "infos"),
            "'infos' is not one of the words, did you mean 'info'? (allowed: debug, info, warning "
            "or error)");
  EXPECT_EQ(mistake("device-memory", "5"),
            "'5' needs a unit: B, KiB, MiB, GiB or TiB (16GiB, 512MiB) (allowed: 1MiB to 1024TiB, "
            "or auto)");
  EXPECT_EQ(mistake("host", ""), "the value is empty");
  EXPECT_NE(mistake("model", "a\xff"), "");
}

TEST(OptionValue, ANumberThatCanOnlyBeBytesNeedsNoUnit) {
  Options options;
  EXPECT_TRUE(set_option(options, *find_option("kv-cache-bytes"), "10737418240"));
  EXPECT_EQ(options.kv_cache_bytes, 10 * kGiB);
  EXPECT_NE(mistake("kv-cache-bytes", "1023"), "");
  EXPECT_NE(mistake("kv-cache-bytes", "2048.5"), "");
}

TEST(OptionValue, CountsRefuseSignsSpacesAndOverflow) {
  for (const char* text : {"+1", " 1", "1 ", "1.0", "1e3", "0x10", "", "99999999999999999999"}) {
    EXPECT_NE(mistake("tp", text), "") << text;
  }
}

TEST(OptionValue, DevicesAreCheckedAndTheMessageSaysWhatIsAllowed) {
  Options options;
  for (const char* text : {"gpu", "0.1", "tpu"}) {
    const Status stored = set_option(options, *find_option("devices"), text);
    ASSERT_FALSE(stored) << text;
    EXPECT_EQ(exit_code(stored.error().code), 78);
    EXPECT_EQ(stored.error().message, std::string("'") + text +
                                          "' names no kind of device (allowed: auto, cpu, cuda, "
                                          "cuda:host, GPUs (cuda:0,1 or GPU-UUID), or "
                                          "simulated:SIZE (simulated:96GiB))");
  }
  for (const char* text : {"cpu", "auto", "cuda", "simulated:96GiB", "0", "0,1",
                           "GPU-8a56a4bc-3184-a4f2-7a5b-91a3b6b2f7a1"}) {
    EXPECT_TRUE(set_option(options, *find_option("devices"), text)) << text;
  }
}

TEST(OptionValue, FractionsAreExactInTextAndJson) {
  Options options;
  const OptionRow& row = *find_option("mem-fraction-static");
  ASSERT_TRUE(set_option(options, row, "0.88"));
  EXPECT_EQ(options.mem_fraction_static, 880'000);
  EXPECT_EQ(option_text(options, row), "0.880");
  EXPECT_EQ(dump_json(option_json(options, row)), "0.88");
  ASSERT_TRUE(set_option_json(options, row, Json(0.55)));
  EXPECT_EQ(options.mem_fraction_static, 550'000);
  ASSERT_TRUE(set_option_json(options, row, "auto"));
  EXPECT_EQ(mistake("mem-fraction-static", "1.5"),
            "1.500 is out of range (allowed: 0.001 to 0.999, or auto)");
  EXPECT_NE(mistake("mem-fraction-static", "88%"), "");
}

TEST(OptionValue, AutoOfALayoutIsNoNumberOfRanks) {
  const OptionRow& row = *find_option("tp");
  Options options;
  ASSERT_TRUE(set_option(options, row, "auto"));
  EXPECT_EQ(options.tp, 0);
  EXPECT_EQ(option_text(options, row), "auto");
  EXPECT_EQ(option_json(options, row), Json("auto"));
  Options read;
  ASSERT_TRUE(set_option_json(read, row, option_json(options, row)));
  EXPECT_EQ(read.tp, 0);
  ASSERT_TRUE(set_option(options, row, "4"));
  EXPECT_EQ(option_text(options, row), "4");
}

TEST(OptionValue, AutoEmptiesAnOptional) {
  Options options;
  options.threads = 3;
  ASSERT_TRUE(set_option(options, *find_option("threads"), "auto"));
  EXPECT_EQ(options.threads, std::nullopt);
}

TEST(OptionValue, DurationsRoundTrip) {
  for (const std::int64_t ms : {0, 1, 250, 1000, 1500, 60'000, 90'000, 3'600'000, 600'000}) {
    const Result<milliseconds> back = parse_duration(format_duration(milliseconds(ms)));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->count(), ms);
  }
  EXPECT_EQ(format_duration(milliseconds(600'000)), "10min");
  EXPECT_EQ(parse_duration("1.5s")->count(), 1500);
  EXPECT_EQ(parse_duration("2h")->count(), 7'200'000);
  for (const char* text : {"", "s", "10", "-1s", "nan", "infs", "1e9s", "10 s", "1d", "9e99h"}) {
    EXPECT_FALSE(parse_duration(text)) << text;
  }
}

TEST(OptionValue, SizesRoundTripExactly) {
  for (const Bytes bytes :
       {Bytes{0}, Bytes{1}, kKiB, kMiB + 1, 1536 * kMiB, 3 * kGiB, Bytes{999}}) {
    EXPECT_EQ(*parse_bytes(format_exact_bytes(bytes)), bytes) << format_exact_bytes(bytes);
  }
  EXPECT_EQ(format_exact_bytes(1536 * kMiB), "1536MiB");
}

TEST(OptionValue, JsonChecksTypeAndRange) {
  Options options;
  EXPECT_FALSE(set_option_json(options, *find_option("port"), "8000"));
  EXPECT_FALSE(set_option_json(options, *find_option("port"), 70'000));
  EXPECT_FALSE(set_option_json(options, *find_option("port"), 1.5));
  EXPECT_FALSE(set_option_json(options, *find_option("host"), 7));
  EXPECT_FALSE(set_option_json(options, *find_option("cpu-path"), "mmx"));
  EXPECT_FALSE(set_option_json(options, *find_option("threads"), nullptr));
  EXPECT_EQ(options, Options{});
  EXPECT_TRUE(set_option_json(options, *find_option("threads"), "auto"));
  EXPECT_TRUE(set_option_json(options, *find_option("step-time-max"), 300));
  EXPECT_EQ(options.step_time_max, milliseconds(300));
}

}  // namespace
}  // namespace plimsoll
