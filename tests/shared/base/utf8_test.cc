#include "shared/base/utf8.h"

#include <gtest/gtest.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

std::string utf8_of(std::uint32_t code) {
  std::string out;
  append_utf8(code, out);
  return out;
}

TEST(Utf8, HasAsManyBytesAsACodePointNeeds) {
  EXPECT_EQ(utf8_of(0x41), "A");
  EXPECT_EQ(utf8_of(0xE9), "\u00e9");
  EXPECT_EQ(utf8_of(0x20AC), "\u20ac");
  EXPECT_EQ(utf8_of(0x1F600), "\U0001f600");
  EXPECT_EQ(utf8_of(0x10FFFF), "\U0010ffff");
}

TEST(Utf8, WhatIsNoCharacterIsReplaced) {
  for (const std::uint32_t code : {0xD800U, 0xDFFFU, 0x110000U, 0xFFFFFFFFU}) {
    EXPECT_EQ(utf8_of(code), "\uFFFD") << code;
  }
  for (std::uint32_t code = 0; code < 0x11000; ++code) ASSERT_TRUE(is_utf8(utf8_of(code))) << code;
}

}  // namespace
}  // namespace plimsoll
