#include "daemon/surveyor.h"

#include <array>
#include <future>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>

namespace plimsoll {
namespace {

Event found(std::int64_t question) { return DevicesFound{std::vector<Device>{}, question}; }
Event late(std::int64_t question) {
  return DevicesFound{timed_out("the driver does not answer"), question};
}
const DevicesFound& devices(const Event& event) { return std::get<DevicesFound>(event); }

// By the times that it is given, which do not pass by themselves.
constexpr Duration kLongest = seconds(3600);

// All that is answered once there is something, while nothing is late.
std::vector<Event> await(Surveyor& surveyor, TimePoint begin) {
  std::vector<pollfd> wanted;
  for (const int fd : surveyor.descriptors()) wanted.push_back({fd, POLLIN, 0});
  EXPECT_GT(::poll(wanted.data(), wanted.size(), -1), 0);
  return surveyor.take(begin);
}

TEST(Surveyor, AnAnswerComesFromAnotherThreadAndOnce) {
  Surveyor surveyor;
  EXPECT_FALSE(surveyor.next_deadline());
  const std::thread::id own = std::this_thread::get_id();
  std::thread::id other = own;
  const TimePoint begin = now();
  surveyor.ask(
      {.find = [&other] { return other = std::this_thread::get_id(), found(7); }, .late = late(7)},
      begin);
  EXPECT_EQ(surveyor.next_deadline(), begin + Surveyor::kLongest);
  const std::vector<Event> answers = await(surveyor, begin);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_TRUE(devices(answers[0]).devices);
  EXPECT_EQ(devices(answers[0]).question, 7);
  EXPECT_NE(other, own);
  EXPECT_TRUE(surveyor.take(begin).empty());
  EXPECT_TRUE(surveyor.descriptors().empty());
}

TEST(Surveyor, OneThatThrowsIsOneWithoutAnAnswer) {
  Surveyor surveyor(kLongest);
  const TimePoint begin = now();
  surveyor.ask({.find = []() -> Event { throw std::runtime_error("ESTALE"); }, .late = late(1)},
               begin);
  const std::vector<Event> answers = await(surveyor, begin);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_FALSE(devices(answers[0]).devices);
}

// What a thread that never comes back waits for; it outlives the surveyor.
struct Gate {
  std::promise<void> opened;
  std::shared_future<void> future = opened.get_future().share();
};

TEST(Surveyor, WhoAnswersTooLateIsLeftBehindAndHoldsUpNobodyElse) {
  Gate gate;
  {
    Surveyor surveyor(kLongest);
    const TimePoint begin = now();
    surveyor.ask({.find = [door = gate.future] { return door.wait(), found(1); }, .late = late(1)},
                 begin);
    surveyor.ask({.find = [] { return found(2); }, .late = late(2)}, begin);
    std::vector<Event> answers = await(surveyor, begin);
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(devices(answers[0]).question, 2);
    answers = surveyor.take(begin + kLongest);
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(devices(answers[0]).question, 1);
    EXPECT_FALSE(devices(answers[0]).devices);
    EXPECT_FALSE(surveyor.next_deadline());
  }
  gate.opened.set_value();  // nobody waits for it any more
}

TEST(Surveyor, WithTooManyThatNeverCameBackNobodyIsAsked) {
  std::array<Gate, Surveyor::kStuckMax> gates;
  Surveyor surveyor(kLongest);
  const TimePoint begin = now();
  for (Gate& gate : gates) {
    surveyor.ask({.find = [door = gate.future] { return door.wait(), found(1); }, .late = late(1)},
                 begin);
  }
  EXPECT_EQ(surveyor.take(begin + kLongest).size(), gates.size());
  bool was_asked = false;
  surveyor.ask({.find = [&was_asked] { return was_asked = true, found(2); }, .late = late(2)},
               begin);
  ASSERT_TRUE(surveyor.next_deadline());
  const std::vector<Event> answers = surveyor.take(begin);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_FALSE(devices(answers[0]).devices);
  EXPECT_FALSE(was_asked);
  // Those that come back make room again, one by one.
  gates[0].opened.set_value();
  bool has_answer = false;
  while (!has_answer) {
    surveyor.ask({.find = [] { return found(3); }, .late = late(3)}, begin);
    const bool is_late = surveyor.next_deadline() == TimePoint();
    if (is_late) {
      EXPECT_FALSE(devices(surveyor.take(begin).at(0)).devices);
      std::this_thread::yield();
      continue;
    }
    const std::vector<Event> after = await(surveyor, begin);
    ASSERT_EQ(after.size(), 1U);
    EXPECT_TRUE(devices(after[0]).devices);
    has_answer = true;
  }
  for (std::size_t i = 1; i < gates.size(); ++i) gates[i].opened.set_value();
}

}  // namespace
}  // namespace plimsoll
