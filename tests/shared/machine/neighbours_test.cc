#include "shared/machine/neighbours.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/fake_root.h"

namespace plimsoll {
namespace {

struct Process {
  std::int64_t pid = 0;
  std::string name;
  std::int64_t parent = 1;
  Bytes anonymous = 0;
  Bytes shared = 0;
};

void write(const FakeRoot& root, const Process& process) {
  root.file(
      fmt::format("proc/{}/status", process.pid),
      fmt::format("Name:\t{}\nPPid:\t{}\nUid:\t0\t0\t0\t0\nRssAnon:\t{} kB\nRssFile:\t99999 "
                  "kB\nRssShmem:\t{} kB\n",
                  process.name, process.parent, process.anonymous / kKiB, process.shared / kKiB));
  root.file(fmt::format("proc/{}/cmdline", process.pid),
            process.name + std::string("\0--serve\0", 9));
}

TEST(Neighbours, AreNamedWithUserCommandAndBytesMostFirst) {
  const FakeRoot root("neighbours_named");
  write(root, {.pid = 10, .name = "small", .anonymous = kMiB});
  write(root, {.pid = 11, .name = "python3", .anonymous = 2 * kGiB, .shared = kGiB});
  write(root, {.pid = 12, .name = "postgres", .shared = 5 * kGiB});
  write(root, {.pid = 13, .name = "own", .anonymous = 9 * kGiB});
  root.file("proc/self/status", "Name: test\n");
  const std::vector<std::int64_t> own = {13};
  const std::vector<Neighbour> found = find_neighbours(own, kGiB, root.path());
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(neighbour_line(found[0]), "PID 12 (root: postgres --serve) holds 5.00 GiB");
  EXPECT_EQ(neighbour_line(found[1]), "PID 11 (root: python3 --serve) holds 3.00 GiB");
}

TEST(Neighbours, WorkersWithoutADaemonAreLeftoversWhateverTheyHold) {
  const FakeRoot root("neighbours_leftovers");
  write(root, {.pid = 20, .name = "plimsolld"});
  write(root, {.pid = 21, .name = "plimsoll-worker", .parent = 20, .anonymous = kMiB});
  write(root, {.pid = 22, .name = "plimsoll-worker", .parent = 1, .anonymous = kMiB});
  write(root, {.pid = 23, .name = "plimsoll-router", .parent = 77, .anonymous = kMiB});
  write(root, {.pid = 24, .name = "other", .anonymous = 3 * kGiB});
  const std::vector<Neighbour> found = find_neighbours({}, kGiB, root.path());
  ASSERT_EQ(found.size(), 3U);
  EXPECT_TRUE(found[0].is_leftover && found[1].is_leftover);
  EXPECT_EQ(found[2].pid, 24);
  EXPECT_NE(neighbour_line(found[0]).find("left over from an earlier plimsolld"),
            std::string::npos);
}

TEST(Neighbours, TheDeadHoldNothing) {
  const FakeRoot root("neighbours_dead");
  root.file("proc/30/status", "Name:\tplimsoll-worker\nState:\tZ (zombie)\nPPid:\t1\n");
  EXPECT_TRUE(find_neighbours({}, 0, root.path()).empty());
}

TEST(Neighbours, AreBounded) {
  const FakeRoot root("neighbours_bounded");
  for (std::int64_t pid = 100; pid < 130; ++pid) {
    write(root, {.pid = pid, .name = "many", .anonymous = pid * kMiB});
  }
  const std::vector<Neighbour> found = find_neighbours({}, kMiB, root.path());
  ASSERT_EQ(found.size(), kNeighboursMax);
  EXPECT_EQ(found[0].pid, 129);
  EXPECT_TRUE(find_neighbours({}, 0, root.path() / "nowhere").empty());
}

TEST(Neighbours, OfADeviceAreThoseThatTheDriverNames) {
  Machine machine;
  machine.devices.resize(2);
  machine.devices[1].name = "NVIDIA H200";
  machine.devices[1].processes = {
      {.pid = 7, .bytes = 70 * kGiB, .user = "ann", .command = "python3 train.py"},
      {.pid = 8, .bytes = {}, .user = "", .command = ""},
      {.pid = 9, .bytes = kGiB, .user = "root", .command = "plimsoll-worker"}};
  const std::vector<std::int64_t> own = {9};
  const std::vector<Neighbour> found = device_neighbours(machine, own);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(neighbour_line(found[0]),
            "PID 7 (ann: python3 train.py) holds 70.00 GiB of NVIDIA H200 1");
  EXPECT_EQ(neighbour_line(found[1]),
            "PID 8 (unknown user: unknown command) holds memory of NVIDIA H200 1");
}

}  // namespace
}  // namespace plimsoll
