#include "shared/base/shown_text.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(ShownText, WhatIsShownHasNoControlCharacters) {
  EXPECT_EQ(shown("tp\x1b[31m\x7f\r\n\xFF"), "tp\\x1b[31m\\x7f\\x0d\n\xEF\xBF\xBD");
  EXPECT_EQ(shown("日"), "日");
  // U+009B begins a sequence as ESC [ does; U+00A0 is a space, and é has a first byte like it.
  EXPECT_EQ(shown("\xC2\x9B"
                  "31m\xC2\xA0\xC3\xA9"),
            "\\x9b31m\xC2\xA0\xC3\xA9");
  EXPECT_EQ(shown("\xC2"), "\xEF\xBF\xBD");
  EXPECT_EQ(shown_line("a\nb\x1b"), "a b\\x1b");
}

}  // namespace
}  // namespace plimsoll
