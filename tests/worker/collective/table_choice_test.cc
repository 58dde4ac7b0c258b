#include "worker/collective/table_choice.h"

#include <array>
#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/shared_block.h"
#include "worker/collective/shm_collective.h"
#include "worker/collective/tunable.h"

namespace plimsoll {
namespace {

constexpr SelfTestSetup kSetup = {.cols = 64, .rows_max = 16, .seed = 7};
constexpr int kRanks = 2;

std::vector<ChosenTable> choose_on_all(const std::optional<BackendTable>& kept) {
  const ReplicaSegmentShape shape{
      .ranks = kRanks, .slot_floats = 4096, .ring_bytes = 1024, .generation = 1};
  SharedBlock block = std::move(*SharedBlock::create("test", replica_segment_bytes(shape)));
  const ReplicaSegment segment = *init_replica_segment(block.bytes(), shape);
  std::vector<ChosenTable> chosen(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto collective = std::move(*make_shm_collective(segment, {rank, false, seconds(20)}));
      auto table = choose_table(*collective, kept, kSetup);
      ASSERT_TRUE(table) << table.error().message;
      ASSERT_TRUE(*table);
      chosen[static_cast<std::size_t>(rank)] = **table;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return chosen;
}

TEST(TableChoice, WithoutATableAllTestAndGetTheSame) {
  const std::vector<ChosenTable> chosen = choose_on_all(std::nullopt);
  EXPECT_FALSE(chosen[0].is_kept);
  EXPECT_EQ(chosen[0].table.tests.size(), 2U);
  EXPECT_EQ(table_hash(chosen[0].table), table_hash(chosen[1].table));
  EXPECT_EQ(chosen[0].table, chosen[1].table);
}

TEST(TableChoice, AKeptTableIsTakenAsItIs) {
  const BackendTable kept{.backend = "shm",
                          .rows = {{4096, "two-shot"}, {kAnySize, "one-shot"}},
                          .left_out = {},
                          .tests = {}};
  for (const ChosenTable& chosen : choose_on_all(kept)) {
    EXPECT_TRUE(chosen.is_kept);
    EXPECT_EQ(chosen.table, kept);
  }
}

TEST(TableChoice, AKeptTableOfSomethingElseIsTestedAnew) {
  for (const ChosenTable& chosen : choose_on_all(table_of_one("ipc", "one-shot"))) {
    EXPECT_FALSE(chosen.is_kept);
    EXPECT_EQ(chosen.table.backend, "shm");
  }
}

TEST(TableChoice, OneRankHasNothingToChoose) {
  const std::unique_ptr<Collective> alone = make_single_collective();
  const auto chosen = choose_table(*alone, std::nullopt, kSetup);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_FALSE(*chosen);
  EXPECT_TRUE(chosen_to_json(*chosen).is_null());
}

// As an ipc collective is.
class Plain : public Collective {
 public:
  explicit Plain(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::string_view name() const override { return "plain"; }
  Status all_reduce_add(SumsView, TensorView) override { return internal_error("not called"); }
  Status gather(TensorView, std::span<const std::int64_t>, TensorView) override {
    return internal_error("not called");
  }
  Status barrier() override { return internal_error("not called"); }
  Status await_peers(Duration) override { return internal_error("not called"); }
  void abort(std::string_view) override {}

 private:
  int size_;
};

// As a shm collective is, with a peer that is late: whatever else it is called for fails otherwise.
class Late : public Plain, public Tunable {
 public:
  Late() : Plain(2) {}
  Status await_peers(Duration patience) override {
    patience_ = patience;
    return unavailable("late");
  }
  Tunable* tunable() override { return this; }
  std::string_view backend() const override { return "shm"; }
  std::span<const std::string_view> algorithms() const override { return kAlgorithms; }
  void use(const BackendTable&) override {}
  Duration patience() const { return patience_; }

 private:
  static constexpr std::array<std::string_view, 1> kAlgorithms = {"one-shot"};
  Duration patience_ = Duration(0);
};

TEST(TableChoice, ARankThatTouchesMoreMemoryIsWaitedForBeforeAnythingWithADeadline) {
  const std::optional<BackendTable> tables[] = {std::nullopt, table_of_one("shm", "one-shot")};
  for (const std::optional<BackendTable>& kept : tables) {
    Late collective;
    const auto chosen = choose_table(collective, kept, kSetup);
    ASSERT_FALSE(chosen);
    EXPECT_EQ(chosen.error().message, "late");
    EXPECT_EQ(collective.patience(), kPeersPatience);
  }
}

TEST(TableChoice, WhereThereIsNothingToChooseRanksSayWhatTheyHave) {
  Plain collective(2);
  const auto chosen = choose_table(collective, std::nullopt, kSetup);
  ASSERT_TRUE(chosen) << chosen.error().message;
  ASSERT_TRUE(*chosen);
  EXPECT_EQ((*chosen)->table, table_of_one("plain", "its own way"));
}

TEST(TableChoice, TheJsonSaysWhetherItWasKept) {
  const Json json =
      chosen_to_json(ChosenTable{.table = table_of_one("shm", "one-shot"), .is_kept = true});
  EXPECT_EQ(*json.find("is_kept"), Json(true));
  EXPECT_TRUE(table_from_json(json));
}

}  // namespace
}  // namespace plimsoll
