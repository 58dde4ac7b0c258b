#include "shared/machine/nvml_api.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(NvmlApi, AMachineWithoutTheLibraryIsNotFound) {
  const Result<NvmlLibrary> library = NvmlLibrary::open("libno-such-library.so.9");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, Code::not_found);
}

TEST(NvmlApi, ALibraryOfAnotherKindIsRefused) {
  const Result<NvmlLibrary> library = NvmlLibrary::open("libm.so.6");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, Code::unavailable);
}

}  // namespace
}  // namespace plimsoll
