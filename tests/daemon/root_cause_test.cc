#include "daemon/root_cause.h"

#include <csignal>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/crash_mark.h"

namespace plimsoll {
namespace {

LastWords ended(std::int64_t rank, const Ending& ending, std::int64_t at = 0) {
  LastWords words;
  words.rank = rank;
  words.pid = 100 + rank;
  words.ending = ending;
  words.first_sign = TimePoint() + seconds(at);
  return words;
}

TEST(RootCause, ASignalOutweighsTheEchoesOfIt) {
  std::vector<LastWords> ranks = {ended(0, {false, 75}, 1), ended(1, {true, SIGSEGV}, 2),
                                  ended(2, {false, 75}, 1)};
  ranks[0].fault = unavailable("a peer has gone");
  ranks[2].fault = timed_out("a peer did not join");
  const RootCause cause = find_root_cause(ranks);
  EXPECT_EQ(cause.rank, 1);
  EXPECT_EQ(cause.message, "rank 1 (pid 101) was killed by SIGSEGV; 2 peers left with it");
  EXPECT_EQ(cause.code, Code::unavailable);
}

TEST(RootCause, SaysWhereARankWasAndWhetherTheFaultIsItsOwn) {
  RankMark mark{.round = 530,
                .op = {.kind = OpKind::all_reduce_add, .chunk = 0, .rows = 4, .cols = 512},
                .steps = 17,
                .activity = Activity::decode,
                .crash_signal = SIGSEGV,
                .crash_address = 0x10};
  // Its core was still being written when it was killed with its peers.
  LastWords crashed = ended(1, {true, SIGKILL, mark});
  crashed.was_killed = true;
  const RootCause cause = find_root_cause(std::vector{crashed});
  EXPECT_EQ(cause.message,
            "rank 1 (pid 101) was killed by SIGSEGV at address 0x10, in step 17 (decode), "
            "collective 530: all_reduce_add [4, 512] chunk 0");
  EXPECT_TRUE(cause.is_own_fault);
}

TEST(RootCause, ACrashSignalThatAnotherProcessSentIsNoFaultOfTheRank) {
  const auto cause_of = [](std::uint64_t address) {
    RankMark mark;
    mark.crash_signal = SIGSEGV;
    mark.crash_address = address;
    return find_root_cause(std::vector{ended(1, {true, SIGSEGV, mark})});
  };
  EXPECT_EQ(cause_of(kCrashSent).message,
            "rank 1 (pid 101) was killed by SIGSEGV (sent by another process)");
  EXPECT_FALSE(cause_of(kCrashSent).is_own_fault);
  EXPECT_EQ(cause_of(kCrashRaised).message, "rank 1 (pid 101) was killed by SIGSEGV");
  EXPECT_TRUE(cause_of(kCrashRaised).is_own_fault);
  EXPECT_NE(cause_of(0).message.find("at address 0x0"), std::string::npos);
}

TEST(RootCause, OnlyACrashOrABrokenInvariantIsAnOwnFault) {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE}) {
    EXPECT_TRUE(find_root_cause(std::vector{ended(0, {true, number})}).is_own_fault) << number;
  }
  for (const Ending& ending :
       {Ending{true, SIGKILL}, Ending{true, SIGTERM}, Ending{false, 0}, Ending{false, 75}}) {
    EXPECT_FALSE(find_root_cause(std::vector{ended(0, ending)}).is_own_fault) << ending.code;
  }
  LastWords words = ended(0, {true, SIGKILL});
  words.verdict = timed_out("hangs");
  EXPECT_FALSE(find_root_cause(std::vector{words}).is_own_fault);
}

TEST(RootCause, AFaultOfItsOwnOutweighsAKillByUs) {
  std::vector<LastWords> ranks = {ended(0, {true, SIGKILL}, 1), ended(1, {false, 78}, 2)};
  ranks[0].was_killed = true;
  ranks[1].fault = corrupt("tensor 3 is cut short");
  const RootCause cause = find_root_cause(ranks);
  EXPECT_EQ(cause.message, "rank 1 (pid 101) failed: tensor 3 is cut short; 1 peer left with it");
  EXPECT_EQ(cause.code, Code::corrupt);
}

TEST(RootCause, TheSupervisorsOwnVerdictComesFirst) {
  std::vector<LastWords> ranks = {ended(0, {true, SIGABRT}, 1), ended(1, {true, SIGKILL}, 2)};
  ranks[1].verdict = timed_out("hangs: it has not answered for 10 s");
  EXPECT_EQ(find_root_cause(ranks).rank, 1);
}

TEST(RootCause, AKillByOthersSaysSo) {
  std::vector<LastWords> ranks = {ended(0, {true, SIGKILL})};
  const auto says = [&](std::string_view words) {
    return find_root_cause(ranks).message.find(words) != std::string::npos;
  };
  EXPECT_TRUE(says("not by plimsolld: by a user, or by the kernel when memory ran out"));
  ranks[0].ending->by_oom = false;
  EXPECT_TRUE(says("not by plimsolld, nor by the kernel for want of memory"));
  ranks[0].ending->by_oom = true;
  EXPECT_TRUE(says("was killed by SIGKILL (OOM: the kernel has ended it, since memory ran out)"));
  EXPECT_FALSE(says("not by plimsolld"));
  EXPECT_FALSE(find_root_cause(ranks).is_own_fault);
  ranks[0].ending->code = SIGTERM;
  EXPECT_FALSE(says("OOM"));
}

TEST(RootCause, AQuietExitThatCameFirstOutweighsTheEchoesOfIt) {
  std::vector<LastWords> ranks = {ended(0, {false, 0}, 1), ended(1, {false, 75}, 2)};
  ranks[1].fault = unavailable("rank 0 has died");
  EXPECT_EQ(find_root_cause(ranks).rank, 1);
  ranks[0].was_first = true;
  EXPECT_EQ(find_root_cause(ranks).rank, 0);
}

TEST(RootCause, AQuietExitIsNamed) {
  const std::vector<LastWords> ranks = {ended(0, {false, 0})};
  EXPECT_EQ(find_root_cause(ranks).message, "rank 0 (pid 100) left without being asked");
}

TEST(RootCause, ExitCodesAndNamesBecomeCodes) {
  EXPECT_EQ(ending_code({false, 78}), Code::invalid);
  EXPECT_EQ(ending_code({false, 3}), Code::does_not_fit);
  EXPECT_EQ(ending_code({false, 127}), Code::internal);
  EXPECT_EQ(ending_code({true, SIGKILL}), Code::unavailable);
  EXPECT_EQ(code_from_name("corrupt"), Code::corrupt);
  EXPECT_EQ(code_from_name("nonsense"), Code::internal);
}

TEST(RootCause, OnlyAnUnexplainedExitMayStillBeExplained) {
  LastWords words = ended(0, {false, 1});
  EXPECT_TRUE(may_still_speak(words));
  words.fault = internal_error("x");
  EXPECT_FALSE(may_still_speak(words));
  EXPECT_FALSE(may_still_speak(ended(0, {true, SIGKILL})));
  EXPECT_FALSE(may_still_speak(ended(0, {false, 0})));
}

}  // namespace
}  // namespace plimsoll
