#include "shared/control/msgpack.h"

#include <limits>

#include <gtest/gtest.h>

#include "shared/base/json.h"

namespace plimsoll {
namespace {

std::span<const std::byte> as_span(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Msgpack, IntegersOfEverySizeComeBackAndReadLikeTheLibrarys) {
  using Limits = std::numeric_limits<std::int64_t>;
  for (int bit = 0; bit < 64; ++bit) {
    for (const std::int64_t step : {-1, 0, 1}) {
      const std::int64_t power = static_cast<std::int64_t>(std::uint64_t{1} << bit);
      if (power == Limits::min() && step < 0) continue;
      for (const std::int64_t value : {power + step, -(power / 2) + step}) {
        MsgpackWriter out;
        out.integer(value);
        MsgpackReader in(as_span(out.bytes()));
        EXPECT_EQ(in.integer(), value);
        EXPECT_TRUE(in.at_end());
        EXPECT_EQ(*from_msgpack(as_span(out.bytes())), Json(value));
        EXPECT_EQ(out.bytes(), to_msgpack(Json(value))) << value;
      }
    }
  }
}

TEST(Msgpack, ASignIsNeverLost) {
  MsgpackWriter out;
  out.unsigned_integer(std::numeric_limits<std::uint64_t>::max());
  out.integer(-1);
  MsgpackReader in(as_span(out.bytes()));
  EXPECT_EQ(in.integer(), std::nullopt);
  EXPECT_EQ(in.position(), 0U);
  EXPECT_EQ(in.unsigned_integer(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(in.unsigned_integer(), std::nullopt);
  EXPECT_EQ(in.integer(), -1);
}

TEST(Msgpack, StringsArraysAndMapsOfEveryHeaderSize) {
  for (const std::size_t size : {0, 1, 15, 16, 31, 32, 255, 256, 65'535, 65'536}) {
    MsgpackWriter out;
    out.string(std::string(size, 'x'));
    out.array(size);
    for (std::size_t i = 0; i < size; ++i) out.boolean(true);
    out.map(size);
    for (std::size_t i = 0; i < 2 * size; ++i) out.number(0.5);
    MsgpackReader in(as_span(out.bytes()));
    ASSERT_EQ(in.string(), std::string(size, 'x'));
    ASSERT_EQ(in.array(), size);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(in.boolean(), true);
    ASSERT_EQ(in.map(), size);
    for (std::size_t i = 0; i < 2 * size; ++i) ASSERT_EQ(in.number(), 0.5);
    EXPECT_TRUE(in.at_end());

    MsgpackReader skipper(as_span(out.bytes()));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(skipper.skip());
    EXPECT_TRUE(skipper.at_end());
  }
}

TEST(Msgpack, SkipsWhatOtherWritersProduce) {
  // Binary, extensions, 32-bit float, nil, then an integer.
  const std::string bytes(
      "\xc4\x02zz\xd4\x01z\xd8\x01zzzzzzzzzzzzzzzz\xc7\x03\x01zzz\xca\0\0\0\0\xc0\x07",
      4 + 3 + 18 + 6 + 5 + 1 + 1);
  MsgpackReader in(as_span(bytes));
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(in.skip()) << i << " " << in.position();
  EXPECT_EQ(in.integer(), 7);
}

TEST(Msgpack, ADeepValueIsSkippedWithoutRecursion) {
  std::string deep(1'000'000, '\x91');
  EXPECT_FALSE(MsgpackReader(as_span(deep)).skip());
  deep.push_back('\x01');
  EXPECT_TRUE(MsgpackReader(as_span(deep)).skip());
}

}  // namespace
}  // namespace plimsoll
