#include "shared/tokenizer/jinja/arithmetic.h"

#include <limits>

#include <gtest/gtest.h>

namespace plimsoll::jinja {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

std::string compute(const Value& left, const char* operation, const Value& right) {
  Heap heap({});
  const auto value = arithmetic(heap, operation, left, right);
  return value ? to_text(heap, *value).bytes() : value.error().message;
}

TEST(JinjaArithmetic, DividesAsPythonDoes) {
  EXPECT_EQ(compute(integer(-7), "//", integer(2)), "-4");
  EXPECT_EQ(compute(integer(-7), "%", integer(2)), "1");
  EXPECT_EQ(compute(integer(7), "%", integer(-2)), "-1");
  EXPECT_EQ(compute(integer(7), "/", integer(2)), "3.5");
  EXPECT_EQ(compute(real(-7.5), "//", integer(2)), "-4.0");
  EXPECT_EQ(compute(integer(2), "**", integer(-1)), "0.5");
  EXPECT_EQ(compute(integer(-1), "**", integer(kMax)), "-1");
}

TEST(JinjaArithmetic, NothingOverflows) {
  for (const char* operation : {"+", "*"}) {
    EXPECT_EQ(compute(integer(kMax), operation, integer(kMax)), "the number is too large");
  }
  EXPECT_EQ(compute(integer(kMin), "-", integer(1)), "the number is too large");
  EXPECT_EQ(compute(integer(kMin), "//", integer(-1)), "the number is too large");
  EXPECT_EQ(compute(integer(kMin), "%", integer(-1)), "0");
  EXPECT_EQ(compute(integer(3), "**", integer(kMax)), "the number is too large");
  EXPECT_EQ(negated(integer(kMin)).error().message, "the number is too large");
  for (const char* operation : {"/", "//", "%"}) {
    EXPECT_EQ(compute(integer(1), operation, integer(0)), "division by zero");
    EXPECT_EQ(compute(real(1), operation, real(0)), "division by zero");
  }
}

TEST(JinjaArithmetic, TypesMustMatch) {
  Heap heap({});
  EXPECT_EQ(compute(heap.text("a", true), "+", integer(1)),
            "'+' is not defined between str and int");
  EXPECT_EQ(compute(heap.undefined("x"), "+", integer(1)), "'x' is undefined");
  EXPECT_EQ(compute(heap.text("ab", true), "*", integer(3)), "ababab");
  EXPECT_EQ(compute(heap.list({integer(1)}), "+", heap.list({none()})), "[1, None]");
}

TEST(JinjaArithmetic, ANumberFromOutsideStaysUntrusted) {
  Heap heap({});
  EXPECT_FALSE(arithmetic(heap, "+", integer(1, false), integer(1))->trusted);
  EXPECT_TRUE(arithmetic(heap, "+", integer(1), integer(1))->trusted);
}

TEST(JinjaArithmetic, RepeatingIsBoundedBeforeItIsDone) {
  Heap heap({.bytes_max = 1000});
  EXPECT_FALSE(arithmetic(heap, "*", heap.text("ab", true), integer(kMax)));
  EXPECT_TRUE(heap.exhausted());
}

}  // namespace
}  // namespace plimsoll::jinja
