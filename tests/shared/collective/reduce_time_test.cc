#include "shared/collective/reduce_time.h"

#include <array>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "shared/base/json.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

constexpr Bytes kRow = 14'336;  // of Kimi-K2: 7,168 x 2 B
constexpr int kReductions = 122;

Machine eight(DeviceLink link, PeerPath path, int generation) {
  Machine machine;
  machine.link = link;
  machine.peers = {.path = path, .has_access = true};
  machine.devices.resize(8);
  for (Device& device : machine.devices) device.pcie_generation = generation;
  return machine;
}

double of_algorithm(const std::string& name, const Machine& machine, std::int64_t ranks,
                    Bytes bytes) {
  const LinkCost link = link_cost(machine);
  if (name == "one-shot") return one_shot(link, ranks, bytes).us;
  if (name == "best-shot") return best_shot(link, ranks, bytes).us;
  if (name == "nccl") return ring(nccl_cost(machine), ranks, bytes).us;
  if (name == "nccl-peers") return ring(nccl_peer_cost(machine), ranks, bytes).us;
  return NAN;
}

// Each figure that others have published and that a formula here is to give; `within` is a ratio.
TEST(ReduceTime, PublishedFiguresComeOut) {
  const auto file = parse_json(read_test_file(golden_path("collectives/published.json")));
  ASSERT_TRUE(file) << file.error().message;
  int checked = 0;
  for (const Json& row : file->find("rows")->as_array()) {
    const auto text = [&](const char* key) { return row.find(key)->as_string(); };
    const auto number = [&](const char* key) { return row.find(key)->as_double(); };
    Machine machine = eight(text("link") == "nvlink" ? DeviceLink::nvlink : DeviceLink::pcie,
                            PeerPath::unknown, static_cast<int>(number("generation")));
    for (const PeerPath path : {PeerPath::one_switch, PeerPath::host_bridge, PeerPath::sockets}) {
      if (text("path") == peer_path_name(path)) machine.peers.path = path;
    }
    const double us = of_algorithm(text("algorithm"), machine, row.find("ranks")->as_int(),
                                   row.find("bytes")->as_int());
    const double ratio = us / number("us");
    EXPECT_LE(std::max(ratio, 1 / ratio), number("within"))
        << text("source") << ": published " << number("us") << ", computed " << us;
    ++checked;
  }
  EXPECT_GE(checked, 20);
}

// The table of lower bounds and estimates for 8 ranks at 25 GB/s and 3.5 µs, ms a token.
TEST(ReduceTime, TheTableOfAllReducesOfATokenComesOut) {
  struct Row {
    std::int64_t batch;
    double custom, low_latency, simple;
  };
  constexpr std::array<Row, 7> kTable = {{{1, 0.9, 2.8, 10.9},
                                          {4, 1.3, 3.5, 11.3},
                                          {8, 1.8, 4.5, 11.7},
                                          {16, 2.8, 6.4, 12.7},
                                          {32, 4.8, 10.4, 14.7},
                                          {64, 8.7, 18.2, 18.6},
                                          {256, 32, 65, 42}}};
  const LinkCost link{.alpha = 3.5, .single = 25'000, .busy = 25'000};
  const Machine machine = eight(DeviceLink::pcie, PeerPath::host_bridge, 5);
  for (const Row& row : kTable) {
    const Bytes bytes = row.batch * kRow;
    const auto ms = [](double us) { return kReductions * us / 1000; };
    EXPECT_NEAR(ms(best_shot(link, 8, bytes).us), row.custom, 0.06 * row.custom) << row.batch;
    RingCost cost = nccl_peer_cost(machine);
    RingProtocol never = {.base = 1e9};
    const RingProtocol simple = cost.simple;
    cost.simple = never;
    EXPECT_NEAR(ms(ring(cost, 8, bytes).us), row.low_latency, 0.06 * row.low_latency) << row.batch;
    cost.simple = simple;
    cost.low_latency = never;
    EXPECT_NEAR(ms(ring(cost, 8, bytes).us), row.simple, 0.06 * row.simple) << row.batch;
  }
}

TEST(ReduceTime, CrossoversAreWherePublishedThresholdsAre) {
  const auto at = [](double alpha, double rate, std::int64_t ranks) {
    return static_cast<double>(
               shot_crossover({.alpha = alpha, .single = rate, .busy = rate}, ranks)) /
           1024;
  };
  EXPECT_NEAR(at(3.5, 25'000, 8), 16, 1);
  EXPECT_NEAR(at(3.5, 45'000, 8), 29, 1);
  EXPECT_NEAR(at(3.5, 25'000, 4), 57, 1);
  EXPECT_NEAR(at(3.5, 45'000, 4), 103, 1);
  EXPECT_NEAR(at(4, 350'000, 8), 260, 1);
  EXPECT_NEAR(at(4, 350'000, 4), 911, 1);
  EXPECT_EQ(shot_crossover({.alpha = 4, .single = 1, .busy = 1}, 2), 0) << "two ranks: one-shot";
}

TEST(ReduceTime, AtTheCrossoverBothShotsTakeTheSame) {
  const LinkCost link{.alpha = 3.5, .single = 25'000, .busy = 25'000};
  const Bytes bytes = shot_crossover(link, 8);
  EXPECT_NEAR(one_shot(link, 8, bytes).us, two_shot(link, 8, bytes).us, 0.01);
  EXPECT_EQ(best_shot(link, 8, bytes / 2).algorithm, "one-shot");
  EXPECT_EQ(best_shot(link, 8, bytes * 2).algorithm, "two-shot");
}

TEST(ReduceTime, NobodyGetsFasterByMoreBytesOrMoreRanks) {
  const Machine machine = eight(DeviceLink::pcie, PeerPath::sockets, 5);
  const LinkCost link = link_cost(machine);
  const RingCost cost = nccl_cost(machine);
  for (Bytes bytes = 1024; bytes <= 256 * kMiB; bytes *= 2) {
    for (std::int64_t ranks = 2; ranks < 8; ++ranks) {
      EXPECT_LE(best_shot(link, ranks, bytes).us, best_shot(link, ranks, 2 * bytes).us);
      EXPECT_LE(best_shot(link, ranks, bytes).us, best_shot(link, ranks + 1, bytes).us);
      EXPECT_LE(ring(cost, ranks, bytes).us, ring(cost, ranks, 2 * bytes).us);
      EXPECT_LE(ring(cost, ranks, bytes).us, ring(cost, ranks + 1, bytes).us);
    }
  }
}

TEST(ReduceTime, FormulasNameTheirNumbers) {
  const Machine machine = eight(DeviceLink::pcie, PeerPath::host_bridge, 5);
  const LinkCost link = link_cost(machine);
  EXPECT_EQ(one_shot(link, 8, kRow).formula, "3.5 + 7 x 14,336 B / 55 GB/s");
  EXPECT_EQ(two_shot(link, 8, kRow).formula, "2 x 3.5 + 2 x 7 / 8 x 14,336 B / 25 GB/s");
  EXPECT_EQ(ring(nccl_cost(machine), 8, kRow).formula, "40 + 14,336 B / 2 GB/s");
  EXPECT_EQ(ring(nccl_peer_cost(machine), 8, kRow).formula,
            "6.6 + 14 x 1 + 2 x 2 x 7 / 8 x 14,336 B / 25 GB/s");
}

TEST(ReduceTime, SymmetricWindowsCostMoreOnNewerCards) {
  const LinkCost link = link_cost(eight(DeviceLink::pcie, PeerPath::host_bridge, 5));
  EXPECT_NEAR(symmetric(link, 8, 1, 9).us, 4.5, 0.01);
  EXPECT_NEAR(symmetric(link, 8, 1, 12).us, 8.5, 0.01);
}

}  // namespace
}  // namespace plimsoll
