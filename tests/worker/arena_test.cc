#include "worker/arena.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

RankPlan plan_of(Bytes weights, Bytes logits) {
  RankPlan plan;
  plan.rows.push_back({.term = Term::weights, .bytes = weights, .formula = {}});
  plan.rows.push_back({.term = Term::logits, .bytes = logits, .formula = {}});
  plan.rows.push_back({.term = Term::process, .bytes = kGiB, .formula = {}});
  return plan;
}

TEST(Arena, CarvesZeroedAlignedMemoryThatDoesNotOverlap) {
  auto arena = Arena::create(plan_of(1000, 1000));
  ASSERT_TRUE(arena) << arena.error().message;
  auto first = arena->take(Term::weights, 100, "a");
  auto second = arena->take(Term::weights, 200, "b");
  auto third = arena->take(Term::logits, 1000, "c");
  ASSERT_TRUE(first && second && third);
  for (const auto& span : {*first, *second, *third}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(span.data()) % 64, 0U);
    EXPECT_TRUE(std::ranges::all_of(span, [](std::byte byte) { return byte == std::byte{0}; }));
  }
  EXPECT_GE(second->data(), first->data() + first->size());
  EXPECT_GE(third->data(), second->data() + second->size());
  EXPECT_EQ(arena->taken(Term::weights), 128 + 200);
  EXPECT_EQ(arena->planned(Term::weights), 1000);
}

TEST(Arena, AnOverrunNamesItsRowAndBothNumbers) {
  auto arena = Arena::create(plan_of(4096, 1000));
  ASSERT_TRUE(arena);
  ASSERT_TRUE(arena->take(Term::logits, 900, "this rank's logits"));
  const auto refused = arena->take(Term::logits, 200, "all ranks' logits");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::internal);
  EXPECT_EQ(refused.error().message,
            "the plan's row \"logits\" has 1000 bytes, and all ranks' logits of 200 bytes needs "
            "1160 of them; the plan estimates too little: please report this with the output of "
            "`plimsoll plan`");
  EXPECT_EQ(arena->taken(Term::logits), 900);
}

TEST(Arena, ATermWithoutARowHasNothing) {
  auto arena = Arena::create(plan_of(4096, 1000));
  ASSERT_TRUE(arena);
  EXPECT_FALSE(arena->take(Term::workspace, 1, "the backend's scratch"));
  EXPECT_TRUE(arena->take(Term::workspace, 0, "nothing"));
}

TEST(Arena, WithoutMemoryItOnlyKeepsBooksOfAllRowsButKv) {
  RankPlan plan = plan_of(72 * kGiB, 1000);
  plan.rows.push_back({.term = Term::kv, .bytes = 10 * kGiB, .formula = {}});
  Arena arena = Arena::without_memory(plan);
  EXPECT_TRUE(arena.memory().empty());
  ASSERT_TRUE(arena.account(Term::weights, 70 * kGiB, "most"));
  ASSERT_TRUE(arena.account(Term::process, kGiB, "all of it"));
  EXPECT_EQ(arena.taken(Term::weights), 70 * kGiB);
  EXPECT_EQ(arena.planned(Term::kv), 0);
  const Status refused = arena.account(Term::weights, 3 * kGiB, "too much");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::internal);
  EXPECT_NE(refused.error().message.find("row \"weights\""), std::string::npos);
  EXPECT_EQ(arena.taken(Term::weights), 70 * kGiB);
}

TEST(MappedMemory, HugePagesAreAligned) {
  const auto memory =
      MappedMemory::create({.bytes = 3 * kMiB, .huge_pages = true, .purpose = "a test"});
  ASSERT_TRUE(memory);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->bytes().data()) % (2 * kMiB), 0U);
  EXPECT_EQ(std::ssize(memory->bytes()), 3 * kMiB);
}

TEST(MappedMemory, WhatTheSystemCannotMapIsSaidSo) {
  const auto memory = MappedMemory::create(
      {.bytes = Bytes{1} << 60, .huge_pages = false, .purpose = "the KV cache"});
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, Code::does_not_fit);
  EXPECT_NE(memory.error().message.find("for the KV cache"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
