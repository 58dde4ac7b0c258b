#include "shared/memory/measured.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Measured, SurvivesTheWayToTheDaemon) {
  Measured measured;
  measured.terms = {{"weights", 72 * kGiB}, {"context", 900 * kMiB}};
  measured.source = "PSS";
  measured.resident = 73 * kGiB;
  measured.kv_committed = 3;
  measured.kv_touched = 2;
  measured.free = 20 * kGiB;
  measured.neighbours = 5;
  const Result<Measured> back = measured_from_json(measured_to_json(measured));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->terms, measured.terms);
  EXPECT_EQ(back->source, "PSS");
  EXPECT_EQ(back->resident, 73 * kGiB);
  EXPECT_EQ(back->kv_committed, 3);
  EXPECT_EQ(back->kv_touched, 2);
  EXPECT_EQ(back->free, 20 * kGiB);
  EXPECT_EQ(back->neighbours, 5);
  EXPECT_EQ(back->cgroup, std::nullopt);
  EXPECT_EQ(back->sum(), 72 * kGiB + 900 * kMiB);
}

TEST(Measured, WhatIsNoNumberOfBytesIsNamed) {
  const auto mistake = [](const Json& json) {
    const Result<Measured> read = measured_from_json(json);
    return read ? std::string() : read.error().message;
  };
  EXPECT_EQ(mistake(Json::object()), "");
  EXPECT_NE(mistake(Json(1)), "");
  EXPECT_NE(mistake(Json::object({{"terms", 1}})).find("terms"), std::string::npos);
  EXPECT_NE(mistake(Json::object({{"terms", Json::object({{"weights", "1"}})}})).find("weights"),
            std::string::npos);
  EXPECT_NE(mistake(Json::object({{"free", -1}})).find("free"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
