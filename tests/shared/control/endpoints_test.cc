#include "shared/control/endpoints.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Endpoints, LieInTheRuntimeFolderAndDifferByIncarnation) {
  EXPECT_EQ(control_endpoint("/run/plimsoll"), "ipc:///run/plimsoll/control");
  EXPECT_EQ(request_endpoint("/run/plimsoll", 1, 4), "ipc:///run/plimsoll/replica-1-4");
  EXPECT_NE(request_endpoint("/r", 1, 11), request_endpoint("/r", 11, 1));
}

}  // namespace
}  // namespace plimsoll
