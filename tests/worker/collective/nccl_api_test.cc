#include "worker/collective/nccl_api.h"

#include <type_traits>

#include <gtest/gtest.h>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define PLIMSOLL_HAS_NCCL_HEADER 1
#endif

namespace plimsoll {
namespace {

TEST(NcclApi, AMachineWithoutNcclIsToldWhatToDo) {
  const auto opened = NcclLibrary::open("libno-such-nccl.so.2");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::not_found);
  EXPECT_NE(opened.error().message.find("libno-such-nccl.so.2"), std::string::npos);
  EXPECT_NE(opened.error().message.find("--collective ipc"), std::string::npos);
}

TEST(NcclApi, ALibraryOfAnotherKindIsRefused) {
  const auto opened = NcclLibrary::open("libm.so.6");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::invalid);
  EXPECT_NE(opened.error().message.find("it has no function nccl"), std::string::npos);
}

#if defined(PLIMSOLL_HAS_NCCL_HEADER)
// The same parameters to the machine: pointers to whatever, integers and enumerations of a size.
template <typename A, typename B>
constexpr bool is_same_to_the_machine() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    return true;
  } else {
    return sizeof(A) == sizeof(B) && std::is_class_v<A> == std::is_class_v<B>;
  }
}
template <typename R, typename... A, typename S, typename... B>
constexpr bool is_same_call(R (*)(A...), S (*)(B...)) {
  static_assert(sizeof...(A) == sizeof...(B));
  return is_same_to_the_machine<R, S>() && (is_same_to_the_machine<A, B>() && ...);
}

TEST(NcclApi, FunctionsAndSettingsAreThoseOfTheHeader) {
  constexpr NcclApi kApi;
#define PLIMSOLL_ROW(member, symbol, parameters) \
  static_assert(is_same_call(decltype(kApi.member){}, decltype(&::symbol){}), #symbol);
  PLIMSOLL_NCCL_FUNCTIONS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
  EXPECT_EQ(offsetof(NcclSettings, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(NcclSettings, max_ctas), offsetof(ncclConfig_t, maxCTAs));
  EXPECT_EQ(offsetof(NcclSettings, net_name), offsetof(ncclConfig_t, netName));
  EXPECT_EQ(offsetof(NcclSettings, split_share), offsetof(ncclConfig_t, splitShare));
  EXPECT_EQ(NcclSettings::kUnset, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(kNcclSuccess, ncclSuccess);
  EXPECT_EQ(kNcclSystemError, ncclSystemError);
  EXPECT_EQ(kNcclInvalidUsage, ncclInvalidUsage);
  EXPECT_EQ(kNcclRemoteError, ncclRemoteError);
  EXPECT_EQ(kNcclInProgress, ncclInProgress);
  EXPECT_EQ(kNcclFloat64, ncclFloat64);
  EXPECT_EQ(kNcclSum, ncclSum);
}
#endif

}  // namespace
}  // namespace plimsoll
