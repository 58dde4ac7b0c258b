#include "kernels/cpu/cpu_features.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

CpuFeatures everything() {
  return {.avx2 = true,
          .fma = true,
          .f16c = true,
          .avx512f = true,
          .avx512bw = true,
          .avx512vl = true,
          .avx512dq = true,
          .avx512vnni = true,
          .os_saves_ymm = true,
          .os_saves_zmm = true};
}

TEST(CpuFeatures, BestPathNeedsEveryExtensionOfThePath) {
  CpuFeatures features = everything();
  EXPECT_EQ(best_path(features), CpuPath::avx512);
  features.avx512vnni = false;
  EXPECT_EQ(best_path(features), CpuPath::avx2);
  features.fma = false;
  EXPECT_EQ(best_path(features), CpuPath::scalar);
}

TEST(CpuFeatures, AnOperatingSystemThatDoesNotSaveTheRegistersRulesThePathOut) {
  CpuFeatures features = everything();
  features.os_saves_zmm = false;
  EXPECT_EQ(best_path(features), CpuPath::avx2);
  features.os_saves_ymm = false;
  EXPECT_EQ(best_path(features), CpuPath::scalar);
}

TEST(CpuFeatures, SaysWhatAPathLacks) {
  CpuFeatures features = everything();
  features.f16c = false;
  features.avx512bw = false;
  EXPECT_EQ(missing_for(features, CpuPath::avx2), "F16C");
  EXPECT_EQ(missing_for(features, CpuPath::avx512), "F16C, AVX-512BW");
  EXPECT_EQ(missing_for(features, CpuPath::scalar), "");
}

TEST(CpuFeatures, DetectionAgreesWithTheCompilersOwn) {
  const CpuFeatures features = detect_cpu_features();
  EXPECT_EQ(supports(features, CpuPath::avx2), __builtin_cpu_supports("avx2") != 0 &&
                                                   __builtin_cpu_supports("fma") != 0 &&
                                                   features.f16c);
  EXPECT_EQ(features.avx512bf16 && features.os_saves_zmm,
            __builtin_cpu_supports("avx512bf16") != 0);
  if (supports(features, CpuPath::avx512)) {
    EXPECT_TRUE(__builtin_cpu_supports("avx512vnni"));
  }
}

}  // namespace
}  // namespace plimsoll
