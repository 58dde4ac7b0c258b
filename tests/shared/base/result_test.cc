#include "shared/base/result.h"

#include <memory>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

Result<std::unique_ptr<int>> make(bool works) {
  if (!works) return not_found("no such number");
  return std::make_unique<int>(7);
}

Result<int> use(bool works) {
  const std::unique_ptr<int> number = TRY_CONTEXT("use: ", make(works));
  return *number;
}

Status pass(bool works) {
  (void)TRY(use(works));
  return {};
}

TEST(Result, TryGivesTheValueOfASuccess) { EXPECT_EQ(*use(true), 7); }

TEST(Result, TryReturnsTheErrorWithItsContextAndCode) {
  const Status status = pass(false);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::not_found);
  EXPECT_EQ(status.error().message, "use: no such number");
}

TEST(Result, EachCodeHasItsExitCodeAndHttpStatus) {
  const struct {
    Code code;
    int exit;
    int http;
  } rows[] = {{Code::invalid, 78, 400},     {Code::not_found, 78, 404},
              {Code::does_not_fit, 3, 503}, {Code::unavailable, 75, 503},
              {Code::timed_out, 75, 504},   {Code::corrupt, 78, 500},
              {Code::internal, 1, 500}};
  for (const auto& row : rows) {
    EXPECT_EQ(exit_code(row.code), row.exit) << code_name(row.code);
    EXPECT_EQ(http_status(row.code), row.http) << code_name(row.code);
  }
}

}  // namespace
}  // namespace plimsoll
