#include "daemon/process_state.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/fake_root.h"

namespace plimsoll {
namespace {

TEST(ProcessState, IsOfTheThreadThatIsStuck) {
  FakeRoot root("process_state");
  root.file("proc/7/task/7/stat", "7 (a) D b) Z 1 7");
  root.file("proc/7/task/8/stat", "8 (worker) D 1 7");
  root.file("proc/7/task/8/wchan", "nv_wait");
  root.file("proc/7/task/9/stat", "9 (worker) S 1 7");
  root.file("proc/7/task/9/wchan", "0");
  const ProcessState state = process_state(7, root.path());
  EXPECT_EQ(state.letter, 'D');
  EXPECT_EQ(state.wait_channel, "nv_wait");
}

TEST(ProcessState, OfOneThatIsGoneNothingIsKnown) {
  FakeRoot root("process_state_gone");
  EXPECT_EQ(process_state(7, root.path()).letter, '?');
}

TEST(ProcessState, OurOwnIsRead) {
  const char letter = process_state(::getpid()).letter;
  EXPECT_TRUE(letter == 'R' || letter == 'S' || letter == 'D') << letter;
}

}  // namespace
}  // namespace plimsoll
