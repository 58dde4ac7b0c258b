#include <gtest/gtest.h>

#include "shared/collective/backend_table.h"
#include "tools/cli/render.h"

namespace plimsoll {
namespace {

Json status_with(Json table, std::size_t ranks) {
  Json list = Json::array();
  for (std::size_t i = 0; i < ranks; ++i) list.push(Json::object());
  return Json::object(
      {{"replicas",
        Json::array({Json::object({{"replica", 3}, {"ranks", list}, {"collectives", table}})})}});
}

TEST(RenderCollectives, SaysByWhatEachReplicaGoesAndSinceWhen) {
  Json table = table_to_json({.backend = "shm",
                              .rows = {{65'536, "one-shot"}, {kAnySize, "two-shot"}},
                              .left_out = {{"bad", "wrong at 1.0 KiB: 3 of 128 values"}},
                              .tests = {}});
  table.set("is_kept", true);
  const std::string text = render_collectives(status_with(table, 2));
  EXPECT_NE(text.find("replica 3: shm, table "), std::string::npos) << text;
  EXPECT_NE(text.find("measured at an earlier start and checked at this one"), std::string::npos);
  EXPECT_NE(text.find("beyond 64.0 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find("without bad: wrong at 1.0 KiB: 3 of 128 values"), std::string::npos) << text;
  const Json only = collectives_of(status_with(table, 2));
  EXPECT_EQ(*only.find("replicas")->as_array()[0].find("collectives"), table);
}

TEST(RenderCollectives, OneRankExchangesNothing) {
  EXPECT_EQ(render_collectives(status_with({}, 1)),
            "replica 3: one rank, which exchanges nothing\n");
  EXPECT_EQ(render_collectives(Json::object()), "nothing runs\n");
}

}  // namespace
}  // namespace plimsoll
