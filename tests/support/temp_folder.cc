#include "tests/support/temp_folder.h"

#include <cstdlib>
#include <string>
#include <system_error>

#include <gtest/gtest.h>

namespace plimsoll {

TempFolder::TempFolder() {
  std::string name = testing::TempDir() + "/plimsoll-XXXXXX";
  EXPECT_NE(::mkdtemp(name.data()), nullptr) << name;
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace plimsoll
