#include "shared/machine/process_name.h"

#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/fake_root.h"

namespace plimsoll {
namespace {

TEST(ProcessName, OfThisProcessIsItsCommand) {
  const ProcessName name = process_name(getpid());
  EXPECT_FALSE(name.user.empty());
  EXPECT_NE(name.command.find("tests"), std::string::npos) << name.command;
}

TEST(ProcessName, OfAProcessThatIsGoneIsEmpty) {
  FakeRoot root("process_name");
  const ProcessName name = process_name(12, root.path());
  EXPECT_TRUE(name.user.empty());
  EXPECT_TRUE(name.command.empty());
}

TEST(ProcessName, LongAndBrokenCommandsAreOneShortLineOfText) {
  FakeRoot root("process_name_long");
  root.file("proc/12/cmdline", "a\nb\xff" + std::string(500, 'x'));
  const std::string command = process_name(12, root.path()).command;
  EXPECT_LT(command.size(), 140U);
  EXPECT_EQ(command.find('\n'), std::string::npos);
  EXPECT_EQ(command.substr(0, 2), "a ");
}

}  // namespace
}  // namespace plimsoll
