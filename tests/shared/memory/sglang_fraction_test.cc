#include "shared/memory/sglang_fraction.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(SglangFraction, IsWhatItsLadderGivesOnKnownCards) {
  struct Card {
    std::int64_t mib;
    double plain_1, plain_8, latent_1, latent_8;
  };
  // T4, 4090, 5090, A100-40, L40S, H100, H200, B200.
  for (const Card& card : {Card{15'360, .735, .677, .657, .599},
                           {24'564, .704, .658, .657, .612},
                           {32'607, .777, .742, .742, .708},
                           {40'960, .823, .795, .795, .767},
                           {46'068, .843, .818, .818, .793},
                           {81'559, .830, .812, .816, .799},
                           {143'771, .903, .893, .896, .886},
                           {183'359, .854, .849, .849, .844}}) {
    const auto fraction = [&](std::int64_t tp, bool is_latent) {
      return static_cast<double>(
                 sglang_auto_fraction({.device_mib = card.mib, .tp = tp, .is_latent = is_latent})) /
             kWhole;
    };
    EXPECT_NEAR(fraction(1, false), card.plain_1, 1e-9) << card.mib;
    EXPECT_NEAR(fraction(8, false), card.plain_8, 1e-9) << card.mib;
    EXPECT_NEAR(fraction(1, true), card.latent_1, 1e-9) << card.mib;
    EXPECT_NEAR(fraction(8, true), card.latent_8, 1e-9) << card.mib;
  }
}

TEST(SglangFraction, DataParallelAttentionReservesForEveryReplica) {
  const SglangLaunch launch{.device_mib = 143'771, .tp = 8, .dp_attention = 8, .is_latent = true};
  EXPECT_EQ(sglang_auto_fraction(launch), 758'000);
  SglangLaunch experts = launch;
  experts.has_deepep = true;
  EXPECT_EQ(sglang_auto_fraction(experts), 744'000);
}

TEST(SglangFraction, AForcedChunkIsReservedFor) {
  EXPECT_EQ(sglang_auto_fraction({.device_mib = 81'559, .tp = 8, .chunked_prefill = 16'384}),
            660'000);
}

TEST(SglangFraction, ItsOwnGraphsGoNoFurtherThanTheRequestsThatMayRun) {
  const SglangLaunch launch{.device_mib = 81'559, .tp = 8};
  EXPECT_EQ(sglang_auto_fraction(launch), 812'000);
  SglangLaunch few = launch;
  few.requests = 16;
  EXPECT_EQ(sglang_auto_fraction(few), 824'000);
  few.graph_batch = 512;  // what is given stays
  EXPECT_EQ(sglang_auto_fraction(few), 812'000);
  SglangLaunch none = launch;
  none.graph_batch = 0;
  EXPECT_EQ(sglang_auto_fraction(none), 825'000);
}

TEST(SglangFraction, AVisionTowerTakesATwentiethOffAndMoreWhereItIsLarge) {
  SglangLaunch launch{.device_mib = 143'771, .tp = 8, .is_latent = true, .has_vision = true};
  EXPECT_EQ(sglang_auto_fraction(launch), 842'000);  // 0.886 x 0.95
  launch.vision_layers = 27;
  launch.vision_hidden = 1152;  // SigLIP: 1.42 times as large
  EXPECT_EQ(sglang_auto_fraction(launch), 806'000);
  launch.vision_hidden = 8192;
  EXPECT_EQ(sglang_auto_fraction(launch), 673'000);  // 0.886 x 0.95 x 0.8
}

TEST(SglangFraction, ItsRequestTableIsTwoGiBFor2048RequestsOf262144Tokens) {
  const Bytes bytes = sglang_request_table_bytes(2048, 262'144);
  EXPECT_GE(bytes, 2 * kGiB);
  EXPECT_LT(bytes, 2 * kGiB + 2 * kMiB);
}

TEST(SglangFraction, TheReserveIsSaidWithItsNumbers) {
  SglangLaunch launch{.device_mib = 97'871, .tp = 8, .has_prefill_graphs = false};
  launch.graph_batch = 128;
  EXPECT_EQ(sglang_reserve(launch).bytes(), (512 + 12'288 + 1'024 + 256) * kMiB);
  EXPECT_EQ(sglang_reserve(launch).formula,
            "512 + 1.5 x 8,192 tokens + 1,024 x 8 ranks / 8 + 2 x 128 MiB");
  launch.pp = 2;
  EXPECT_EQ(sglang_reserve(launch).bytes(), (512 + 12'288 + 2'048 + 256) * kMiB);
  launch.chunked_prefill = 2048;
  EXPECT_EQ(sglang_reserve(launch).bytes(), 10 * kGiB);
  launch.has_deepep = true;
  EXPECT_EQ(sglang_reserve(launch).formula,
            "the 10,240 of a device of more than 60 GiB + 2,048 MiB");
}

}  // namespace
}  // namespace plimsoll
