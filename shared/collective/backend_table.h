// BackendTable: which algorithm of a collective is taken for messages of which size, decided from
// what a test at start measured. Pure: the same measurements give the same table on every rank.
//
// Only algorithms that give the same bits may stand in one table: tokens must not depend on the
// size of a step.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/base/units.h"

namespace plimsoll {

enum class TestState { right, wrong, hung };
const char* test_state_name(TestState state);

// One algorithm at one size.
struct SizeTest {
  Bytes bytes = 0;
  TestState state = TestState::right;
  double us = 0;  // of the slowest rank, the median of its rounds; of one that hung its patience
  std::int64_t wrong = 0;   // values that are not what they have to be
  std::int64_t values = 0;  // looked at
  bool operator==(const SizeTest&) const = default;
};

struct AlgorithmTest {
  std::string name;
  // Ascending; the same for all, as far as a test got; of one that hung none follow.
  std::vector<SizeTest> sizes;
  bool operator==(const AlgorithmTest&) const = default;
};

struct TableRow {
  Bytes up_to = 0;  // of a message, kAnySize in the last row
  std::string algorithm;
  bool operator==(const TableRow&) const = default;
};
constexpr Bytes kAnySize = std::numeric_limits<Bytes>::max();

struct LeftOut {
  std::string algorithm;
  std::string why;  // with its numbers
  bool operator==(const LeftOut&) const = default;
};

struct BackendTable {
  std::string backend;               // "shm"
  std::vector<TableRow> rows;        // ascending, one at least
  std::vector<LeftOut> left_out;     // that stand in no row
  std::vector<AlgorithmTest> tests;  // what was decided from; empty: nothing was to be decided
  bool operator==(const BackendTable&) const = default;
};

// The first algorithm is the one that is kept unless another is a tenth faster. Who is wrong or
// hangs at any size is not taken for any. Errors: Code::internal: none is right.
Result<BackendTable> select_table(std::string backend, std::span<const AlgorithmTest> tests);
// Without a choice.
BackendTable table_of_one(std::string backend, std::string algorithm);

// REQUIRES: the table has rows.
const std::string& algorithm_for(const BackendTable& table, Bytes bytes);
// Of what ranks must agree on: backend and rows. 16 hexadecimal digits.
std::string table_hash(const BackendTable& table);

// {"backend", "hash", "rows": [{"up_to", "algorithm"}], "left_out": [...], "tests": [...]};
// `up_to` of the last row is null.
Json table_to_json(const BackendTable& table);
// Errors: Code::invalid, naming the member; rows that do not ascend, or a hash that is not theirs.
Result<BackendTable> table_from_json(const Json& json);
// A few lines for people, each after `indent`.
std::string table_text(const BackendTable& table, const std::string& indent);

}  // namespace plimsoll
