#include "shared/memory/held_memory.h"

#include <gtest/gtest.h>

#include "tests/support/plan_cases.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

TEST(HeldMemory, ItFitsAloneWhereOnlyOthersStandAgainstIt) {
  SKIP_WITHOUT(default_model_path());
  Machine machine = test_machine(100 * kMiB);
  machine.memory_total = 4 * kGiB;
  const std::string model = "--model=" + default_model_path().string();
  EXPECT_TRUE(fits_alone(machine, test_options({model})));
  EXPECT_FALSE(fits_alone(machine, test_options({model, "--device-memory=100MiB"})));
}

TEST(HeldMemory, ARefusalSaysWhoOrThatNobodyHoldsMuch) {
  EXPECT_EQ(holders_text({}),
            "\nOther processes hold the memory that it would fit in: none of them holds much "
            "alone");
  const std::vector<std::string> holders = {"PID 7 (me: python3) holds 9.00 GiB"};
  EXPECT_EQ(holders_text(holders),
            "\nOther processes hold the memory that it would fit in:\n"
            "  PID 7 (me: python3) holds 9.00 GiB");
}

// Of devices as the driver says; this process is not among them.
TEST(HeldMemory, NamesWhoIsOnADevice) {
  Machine machine = test_machine(kGiB);
  machine.devices.resize(1);
  machine.devices[0].name = "GPU";
  machine.devices[0].processes = {{.pid = 7, .bytes = kGiB, .user = "me", .command = "python3"},
                                  {.pid = 8, .bytes = kGiB, .user = "me", .command = "ours"}};
  const std::int64_t own[] = {8};
  EXPECT_EQ(all_holders(machine, own),
            std::vector<std::string>{"PID 7 (me: python3) holds 1.00 GiB of GPU 0"});
}

}  // namespace
}  // namespace plimsoll
