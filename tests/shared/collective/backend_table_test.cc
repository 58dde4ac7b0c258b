#include "shared/collective/backend_table.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

AlgorithmTest test_of(const std::string& name, const std::vector<double>& us) {
  AlgorithmTest test{.name = name, .sizes = {}};
  Bytes bytes = 1024;
  for (const double one : us) {
    test.sizes.push_back({.bytes = bytes, .us = one, .values = 128});
    bytes *= 4;
  }
  return test;
}

BackendTable selected(const std::vector<AlgorithmTest>& tests) {
  return *select_table("shm", tests);
}

TEST(BackendTable, EachSizeGetsTheFastest) {
  const BackendTable table =
      selected({test_of("one-shot", {1, 4, 16, 64}), test_of("two-shot", {3, 6, 12, 30})});
  const std::vector<TableRow> expected = {{4096, "one-shot"}, {kAnySize, "two-shot"}};
  EXPECT_EQ(table.rows, expected);
  EXPECT_TRUE(table.left_out.empty());
  EXPECT_EQ(algorithm_for(table, 1), "one-shot");
  EXPECT_EQ(algorithm_for(table, 4096), "one-shot");
  EXPECT_EQ(algorithm_for(table, 4097), "two-shot");
  EXPECT_EQ(algorithm_for(table, kGiB), "two-shot");
}

TEST(BackendTable, TheFirstStaysUnlessAnotherIsClearlyFaster) {
  const BackendTable table =
      selected({test_of("one-shot", {10, 10}), test_of("two-shot", {9.5, 9.1})});
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(table.rows[0].algorithm, "one-shot");
  ASSERT_EQ(table.left_out.size(), 1U);
  EXPECT_EQ(table.left_out[0].why,
            "slower, or not clearly faster, at every size; nearest at 4.0 KiB: 9.1 µs, one-shot "
            "10.0 µs");
}

TEST(BackendTable, WhoIsWrongAtOneSizeIsTakenForNone) {
  AlgorithmTest fast = test_of("two-shot", {0.1, 0.1, 0.1});
  fast.sizes[1] = {.bytes = 4096, .state = TestState::wrong, .us = 0.1, .wrong = 3, .values = 512};
  const BackendTable table = selected({test_of("one-shot", {1, 4, 16}), fast});
  ASSERT_EQ(table.rows.size(), 1U);
  ASSERT_EQ(table.left_out.size(), 1U);
  EXPECT_EQ(table.left_out[0].why, "wrong at 4.0 KiB: 3 of 512 values");
}

TEST(BackendTable, WhoHangsIsTakenForNoneAndItsJsonSaysSo) {
  AlgorithmTest hangs = test_of("two-shot", {0.1});
  hangs.sizes.push_back({.bytes = 4096, .state = TestState::hung, .us = 5e6, .values = 512});
  const BackendTable table = selected({test_of("one-shot", {1, 4, 16}), hangs});
  ASSERT_EQ(table.rows.size(), 1U);
  ASSERT_EQ(table.left_out.size(), 1U);
  EXPECT_EQ(table.left_out[0].why, "hung at 4.0 KiB: not all ranks were done within 5.0 s");
  const auto read = table_from_json(table_to_json(table));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, table);
  EXPECT_NE(table_text(table, "").find("4.0 KiB hung"), std::string::npos);
}

TEST(BackendTable, WhereTheFirstIsWrongTheSecondIsTaken) {
  AlgorithmTest first = test_of("one-shot", {1});
  first.sizes[0].state = TestState::wrong;
  const BackendTable table = selected({first, test_of("two-shot", {5, 6})});
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(table.rows[0].algorithm, "two-shot");
}

TEST(BackendTable, WhereNoneIsRightThatIsAnErrorWithEveryReason) {
  AlgorithmTest first = test_of("one-shot", {1});
  AlgorithmTest second = test_of("two-shot", {1});
  first.sizes[0].state = TestState::wrong;
  second.sizes[0].state = TestState::wrong;
  const auto table = select_table("shm", std::vector<AlgorithmTest>{first, second});
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, Code::internal);
  EXPECT_NE(table.error().message.find("one-shot: wrong"), std::string::npos);
  EXPECT_NE(table.error().message.find("two-shot: wrong"), std::string::npos);
  EXPECT_FALSE(select_table("shm", {}));
}

TEST(BackendTable, ASizeThatOneDidNotReachIsTheOthers) {
  const BackendTable table =
      selected({test_of("one-shot", {1, 4, 16}), test_of("two-shot", {0.5})});
  const std::vector<TableRow> expected = {{1024, "two-shot"}, {kAnySize, "one-shot"}};
  EXPECT_EQ(table.rows, expected);
}

TEST(BackendTable, TheHashIsOfWhatRanksMustAgreeOn) {
  const std::vector<AlgorithmTest> tests = {test_of("one-shot", {1, 4, 16}),
                                            test_of("two-shot", {3, 6, 9})};
  const BackendTable table = selected(tests);
  BackendTable other = table;
  other.tests[0].sizes[0].us = 99;
  EXPECT_EQ(table_hash(other), table_hash(table)) << "measurements may differ";
  other.rows[0].up_to += 1;
  EXPECT_NE(table_hash(other), table_hash(table));
  other = table;
  other.rows[1].algorithm = "one-shot";
  EXPECT_NE(table_hash(other), table_hash(table));
  other = table;
  other.backend = "ipc";
  EXPECT_NE(table_hash(other), table_hash(table));
}

TEST(BackendTable, JsonReadsBackAsTheSameTable) {
  AlgorithmTest wrong = test_of("two-shot", {0.1});
  wrong.sizes[0].state = TestState::wrong;
  for (const BackendTable& table :
       {selected({test_of("one-shot", {1, 4, 16, 64}), test_of("other", {3, 6, 12, 30}), wrong}),
        table_of_one("nccl", "ring")}) {
    const auto again = table_from_json(*parse_json(dump_json(table_to_json(table))));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, table);
  }
}

TEST(BackendTable, WhatWasChangedOnTheWayIsRefused) {
  const Json good =
      table_to_json(selected({test_of("one-shot", {1, 4, 16}), test_of("two-shot", {3, 6, 9})}));
  const auto refused = [&](const char* member, Json value) {
    Json bad = good;
    bad.set(member, std::move(value));
    return !table_from_json(bad);
  };
  EXPECT_TRUE(table_from_json(good));
  EXPECT_TRUE(refused("backend", "ipc")) << "another hash";
  EXPECT_TRUE(refused("backend", 1));
  EXPECT_TRUE(refused("rows", Json::array()));
  EXPECT_TRUE(refused("rows", "none"));
  EXPECT_TRUE(refused("rows", Json::array({Json::object({{"up_to", 10}, {"algorithm", "a"}}),
                                           Json::object({{"up_to", 5}, {"algorithm", "b"}}),
                                           Json::object({{"algorithm", "c"}})})));
  EXPECT_TRUE(refused("tests", Json()));
  EXPECT_FALSE(table_from_json(Json()));
}

TEST(BackendTable, TheTextHasEveryNumberAndWhoWasLeftOut) {
  AlgorithmTest wrong = test_of("bad", {1});
  wrong.sizes[0].state = TestState::wrong;
  const std::string text = table_text(
      selected({test_of("one-shot", {1, 4, 16}), test_of("two-shot", {3, 6, 9}), wrong}), "  ");
  EXPECT_NE(text.find("  up to 4.0 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find("  beyond 4.0 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find("16.0 KiB 9.0 µs"), std::string::npos) << text;
  EXPECT_NE(text.find("without bad: wrong at 1.0 KiB"), std::string::npos) << text;
}

}  // namespace
}  // namespace plimsoll
