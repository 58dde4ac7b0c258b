#include "shared/base/shown_text.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(ShownText, WhatIsShownHasNoControlCharacters) {
  EXPECT_EQ(shown("tp\x1b[31m\x7f\r\n\xFF"), "tp\\x1b[31m\\x7f\\x0d\n\xEF\xBF\xBD");
  EXPECT_EQ(shown("日"), "日");
}

}  // namespace
}  // namespace plimsoll
