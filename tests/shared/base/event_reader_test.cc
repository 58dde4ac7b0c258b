#include "shared/base/event_reader.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::vector<std::string> events_of(const std::vector<std::string>& pieces) {
  std::vector<std::string> events;
  EventReader reader(
      [&](std::string_view data) {
        events.emplace_back(data);
        return true;
      },
      100);
  for (const std::string& piece : pieces) EXPECT_TRUE(reader.feed(piece));
  return events;
}

TEST(EventReader, GivesTheSameEventsHoweverTheyAreCut) {
  const std::string text =
      ": hello\r\ndata: one\r\n\r\ndata:two\ndata: lines\n\nid: 7\n\ndata\n\ndataset: x\n\n";
  const std::vector<std::string> expected = {"one", "two\nlines", ""};
  EXPECT_EQ(events_of({text}), expected);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(events_of({text.substr(0, cut), text.substr(cut)}), expected) << cut;
  }
}

TEST(EventReader, LinesMayEndWithCarriageReturnsAlone) {
  EXPECT_EQ(events_of({"data: one\r\rdata: two\r\r"}), (std::vector<std::string>{"one", "two"}));
}

TEST(EventReader, AnUnfinishedEventIsNotGiven) { EXPECT_TRUE(events_of({"data: one\n"}).empty()); }

TEST(EventReader, StopsWhereToldTo) {
  int count = 0;
  EventReader reader(
      [&](std::string_view) {
        ++count;
        return false;
      },
      100);
  const Result<bool> more = reader.feed("data: one\n\ndata: two\n\n");
  ASSERT_TRUE(more);
  EXPECT_FALSE(*more);
  EXPECT_EQ(count, 1);
}

TEST(EventReader, AnEndlessEventIsRefused) {
  EventReader reader([](std::string_view) { return true; }, 100);
  EXPECT_FALSE(reader.feed(std::string(101, 'x')));
}

}  // namespace
}  // namespace plimsoll
