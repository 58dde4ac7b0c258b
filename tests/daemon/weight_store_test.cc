#include "daemon/weight_store.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "shared/base/sealed_block.h"
#include "shared/memory/weight_label.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

constexpr Bytes kBytes = 3000;

class WeightStoreTest : public ::testing::Test {
 protected:
  // Two replicas of two ranks.
  LaunchPlan plan() const {
    LaunchPlan plan;
    plan.options.values.model = model_.string();
    plan.tp = plan.dp = 2;
    for (int i = 0; i < 4; ++i) {
      RankPlan rank;
      rank.replica = i / 2;
      rank.rank = i % 2;
      rank.shard.heads = {i % 2 * 4, i % 2 * 4 + 4};
      rank.rows.push_back({.term = Term::weights, .bytes = kBytes, .formula = {}});
      plan.memory.ranks.push_back(rank);
    }
    return plan;
  }
  void write_model(const std::string& text) const { std::ofstream(model_) << text; }
  void SetUp() override { write_model("weights"); }

  TempFolder folder_;
  std::filesystem::path model_ = folder_.path() / "model.gguf";
  ServiceNotify service_;
};

TEST_F(WeightStoreTest, ARankHasOneBlockInAllReplicasAndAllItsLives) {
  WeightStore store({}, service_);
  const int first = store.block_of(plan(), 0, 0);
  EXPECT_GE(first, 0);
  EXPECT_EQ(store.block_of(plan(), 1, 0), first);
  EXPECT_EQ(store.block_of(plan(), 0, 0), first);
  EXPECT_NE(store.block_of(plan(), 0, 1), first);
}

// The new one may get the old one's number.
bool is_sealed(int fd) { return SealedBlock::label_of(fd).has_value(); }

TEST_F(WeightStoreTest, WeightsOfAnotherFileOrShardAreNotGiven) {
  WeightStore store({}, service_);
  const auto fill = [&](int fd, const LaunchPlan& of) {
    const auto label = weight_label(model_.string(), of.memory.ranks[0]);
    ASSERT_TRUE(label);
    auto block = SealedBlock::open(fd, kBytes, *label);
    ASSERT_TRUE(block) << block.error().message;
    ASSERT_TRUE((*block)->seal());
  };
  LaunchPlan now = plan();
  ASSERT_NO_FATAL_FAILURE(fill(store.block_of(now, 0, 0), now));
  EXPECT_TRUE(is_sealed(store.block_of(now, 0, 0)));
  write_model("others");
  EXPECT_FALSE(is_sealed(store.block_of(now, 0, 0)));
  ASSERT_NO_FATAL_FAILURE(fill(store.block_of(now, 0, 0), now));
  now.memory.ranks[0].shard.heads.end = 5;
  EXPECT_FALSE(is_sealed(store.block_of(now, 0, 0)));
  ASSERT_NO_FATAL_FAILURE(fill(store.block_of(now, 0, 0), now));
  store.drop();
  EXPECT_FALSE(is_sealed(store.block_of(now, 0, 0)));
}

TEST_F(WeightStoreTest, WhatTheServiceManagerKeptIsGivenWhereItIsStillTheSame) {
  const LaunchPlan now = plan();
  const auto kept = [&](int rank, const std::string& label) {
    Result<UniqueFd> fd = SealedBlock::create("test", kBytes);
    EXPECT_TRUE(fd);
    auto block = SealedBlock::open(fd->get(), kBytes, label);
    EXPECT_TRUE(block) << block.error().message;
    EXPECT_TRUE((*block)->seal());
    return InheritedDescriptor{kStoredWeights + std::to_string(rank), std::move(*fd)};
  };
  std::vector<InheritedDescriptor> inherited;
  inherited.push_back(kept(0, *weight_label(model_.string(), now.memory.ranks[0])));
  inherited.push_back(kept(1, "of another model"));
  WeightStore store(std::move(inherited), service_);
  EXPECT_TRUE(is_sealed(store.block_of(now, 1, 0)));
  EXPECT_FALSE(is_sealed(store.block_of(now, 1, 1)));
}

TEST_F(WeightStoreTest, SaysWhichRanksOfAPlanWouldMapWhatIsThere) {
  WeightStore store({}, service_);
  LaunchPlan next = plan();
  store.note_shared(next);
  EXPECT_EQ(next.shares_weights, (std::vector<bool>{false, false}));
  const LaunchPlan now = plan();
  const auto label = weight_label(model_.string(), now.memory.ranks[1]);
  ASSERT_TRUE(label);
  ASSERT_GE(store.block_of(now, 0, 0), 0);
  auto block = SealedBlock::open(store.block_of(now, 0, 1), kBytes, *label);
  ASSERT_TRUE(block) << block.error().message;
  ASSERT_TRUE((*block)->seal());
  store.note_shared(next);
  EXPECT_EQ(next.shares_weights, (std::vector<bool>{false, true})) << "what is sealed is mapped";
  next.memory.ranks[1].shard.heads.end = 5;
  store.note_shared(next);
  EXPECT_EQ(next.shares_weights, (std::vector<bool>{false, false}));
  next = plan();
  next.options.values.devices = "simulated:1GiB";
  store.note_shared(next);
  EXPECT_EQ(next.shares_weights, (std::vector<bool>{false, false}));
}

TEST_F(WeightStoreTest, ThereIsNoneForOtherDevicesNorOfAFileThatIsNotThere) {
  WeightStore store({}, service_);
  for (const char* devices : {"simulated:1GiB", "cuda:host"}) {
    LaunchPlan other = plan();
    other.options.values.devices = devices;
    EXPECT_EQ(store.block_of(other, 0, 0), -1) << devices;
  }
  LaunchPlan cuda = plan();
  cuda.options.values.devices = "cuda:host";
  EXPECT_EQ(store.block_of(cuda, 0, 0), -1);
  LaunchPlan nothing = plan();
  nothing.options.values.model = "/nowhere";
  EXPECT_EQ(store.block_of(nothing, 0, 0), -1);
}

}  // namespace
}  // namespace plimsoll
