#include "shared/collective/backend_table.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

constexpr double kClearly = 0.9;  // of the first one's time
constexpr std::size_t kRowsMax = 64;
constexpr std::array<TestState, 3> kStates = {TestState::right, TestState::wrong, TestState::hung};

// The first mistake of an algorithm.
std::optional<std::string> mistake_of(const AlgorithmTest& test) {
  for (const SizeTest& size : test.sizes) {
    if (size.state == TestState::wrong) {
      return fmt::format("wrong at {}: {} of {} values", format_bytes(size.bytes),
                         grouped(size.wrong), grouped(size.values));
    }
    if (size.state == TestState::hung) {
      return fmt::format("hung at {}: not all ranks were done within {:.1f} s",
                         format_bytes(size.bytes), size.us / 1e6);
    }
  }
  return std::nullopt;
}

const SizeTest* at_size(const AlgorithmTest& test, Bytes bytes) {
  const auto found = std::ranges::find(test.sizes, bytes, &SizeTest::bytes);
  return found == test.sizes.end() ? nullptr : &*found;
}

// Where a right one is nowhere the fastest: by how much, where it came nearest.
std::string slower_text(const AlgorithmTest& test, std::span<const AlgorithmTest* const> right,
                        const BackendTable& table) {
  std::string text = "slower, or not clearly faster, at every size";
  double nearest = 0;
  for (const SizeTest& size : test.sizes) {
    const std::string& taken = algorithm_for(table, size.bytes);
    const auto found = std::ranges::find_if(
        right, [&](const AlgorithmTest* other) { return other->name == taken; });
    const SizeTest* best = found == right.end() ? nullptr : at_size(**found, size.bytes);
    if (best == nullptr || size.us <= 0 || best->us / size.us <= nearest) continue;
    nearest = best->us / size.us;
    text = fmt::format(
        "slower, or not clearly faster, at every size; nearest at {}: {:.1f} µs, {} "
        "{:.1f} µs",
        format_bytes(size.bytes), size.us, taken, best->us);
  }
  return text;
}

Json test_to_json(const AlgorithmTest& test) {
  Json sizes = Json::array();
  for (const SizeTest& size : test.sizes) {
    sizes.push(Json::object({{"bytes", size.bytes},
                             {"state", test_state_name(size.state)},
                             {"us", size.us},
                             {"wrong", size.wrong},
                             {"values", size.values}}));
  }
  return Json::object({{"algorithm", test.name}, {"sizes", std::move(sizes)}});
}

// --- reading ---

Error mistake(const char* what) { return invalid(fmt::format("collective table: {}", what)); }

Result<std::string> text_of(const Json& json, std::string_view name) {
  const Json* found = json.find(name);
  if (found == nullptr || !found->is_string()) {
    return invalid(fmt::format("collective table: {} must be a string", name));
  }
  return found->as_string();
}

Result<std::int64_t> count_of(const Json& json, std::string_view name) {
  const Json* found = json.find(name);
  if (found == nullptr || !found->is_integer() || found->as_int() < 0) {
    return invalid(fmt::format("collective table: {} must be an integer", name));
  }
  return found->as_int();
}

Result<const Json::Array*> list_of(const Json& json, std::string_view name) {
  const Json* found = json.find(name);
  if (found == nullptr || !found->is_array() || found->as_array().size() > kRowsMax) {
    return invalid(
        fmt::format("collective table: {} must be a list of at most {}", name, kRowsMax));
  }
  return &found->as_array();
}

Result<SizeTest> size_from_json(const Json& json) {
  SizeTest size;
  size.bytes = TRY(count_of(json, "bytes"));
  const std::string state = TRY(text_of(json, "state"));
  const auto found = std::ranges::find_if(
      kStates, [&](TestState candidate) { return state == test_state_name(candidate); });
  if (found == kStates.end()) return mistake("state must be right, wrong or hung");
  size.state = *found;
  const Json* us = json.find("us");
  if (us == nullptr || !us->is_number()) return mistake("us must be a number");
  size.us = us->as_double();
  size.wrong = TRY(count_of(json, "wrong"));
  size.values = TRY(count_of(json, "values"));
  return size;
}

Status read_rows(const Json& json, BackendTable& table) {
  const Json::Array& rows = *TRY(list_of(json, "rows"));
  if (rows.empty()) return mistake("rows must not be empty");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    TableRow row{.up_to = kAnySize, .algorithm = TRY(text_of(rows[i], "algorithm"))};
    if (i + 1 < rows.size()) row.up_to = TRY(count_of(rows[i], "up_to"));
    if (i > 0 && row.up_to <= table.rows.back().up_to) return mistake("rows must ascend");
    table.rows.push_back(std::move(row));
  }
  return {};
}

}  // namespace

const char* test_state_name(TestState state) {
  switch (state) {
    case TestState::right:
      return "right";
    case TestState::wrong:
      return "wrong";
    case TestState::hung:
      return "hung";
  }
  return "wrong";
}

Result<BackendTable> select_table(std::string backend, std::span<const AlgorithmTest> tests) {
  BackendTable table{.backend = std::move(backend), .rows = {}, .left_out = {}, .tests = {}};
  table.tests.assign(tests.begin(), tests.end());
  std::vector<const AlgorithmTest*> right;
  for (const AlgorithmTest& test : tests) {
    if (std::optional<std::string> why = mistake_of(test)) {
      table.left_out.push_back({test.name, std::move(*why)});
    } else if (!test.sizes.empty()) {
      right.push_back(&test);
    }
  }
  if (right.empty()) {
    std::string why;
    for (const LeftOut& one : table.left_out)
      why += fmt::format("; {}: {}", one.algorithm, one.why);
    return internal_error(
        fmt::format("no algorithm of the {} collective is right{}", table.backend, why));
  }
  for (const SizeTest& size : right.front()->sizes) {
    const AlgorithmTest* best = right.front();
    double us = size.us * kClearly;
    for (const AlgorithmTest* other : right) {
      const SizeTest* own = at_size(*other, size.bytes);
      if (other == right.front() || own == nullptr || own->us >= us) continue;
      best = other;
      us = own->us;
    }
    if (!table.rows.empty() && table.rows.back().algorithm == best->name) {
      table.rows.back().up_to = size.bytes;
    } else {
      table.rows.push_back({size.bytes, best->name});
    }
  }
  table.rows.back().up_to = kAnySize;
  for (const AlgorithmTest* test : right) {
    if (std::ranges::find(table.rows, test->name, &TableRow::algorithm) != table.rows.end())
      continue;
    table.left_out.push_back({test->name, slower_text(*test, right, table)});
  }
  return table;
}

BackendTable table_of_one(std::string backend, std::string algorithm) {
  return {.backend = std::move(backend),
          .rows = {{kAnySize, std::move(algorithm)}},
          .left_out = {},
          .tests = {}};
}

const std::string& algorithm_for(const BackendTable& table, Bytes bytes) {
  const auto row =
      std::ranges::find_if(table.rows, [&](const TableRow& one) { return bytes <= one.up_to; });
  return row == table.rows.end() ? table.rows.back().algorithm : row->algorithm;
}

std::string table_hash(const BackendTable& table) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](std::string_view text) {
    for (const char c : text) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
  };
  add(table.backend);
  for (const TableRow& row : table.rows) add(fmt::format("|{} {}", row.up_to, row.algorithm));
  return fmt::format("{:016x}", hash);
}

Json table_to_json(const BackendTable& table) {
  Json rows = Json::array();
  for (const TableRow& row : table.rows) {
    rows.push(Json::object({{"up_to", row.up_to == kAnySize ? Json() : Json(row.up_to)},
                            {"algorithm", row.algorithm}}));
  }
  Json left_out = Json::array();
  for (const LeftOut& one : table.left_out) {
    left_out.push(Json::object({{"algorithm", one.algorithm}, {"why", one.why}}));
  }
  Json tests = Json::array();
  for (const AlgorithmTest& test : table.tests) tests.push(test_to_json(test));
  return Json::object({{"backend", table.backend},
                       {"hash", table_hash(table)},
                       {"rows", std::move(rows)},
                       {"left_out", std::move(left_out)},
                       {"tests", std::move(tests)}});
}

Result<BackendTable> table_from_json(const Json& json) {
  if (!json.is_object()) return mistake("it must be an object");
  BackendTable table;
  table.backend = TRY(text_of(json, "backend"));
  TRY(read_rows(json, table));
  for (const Json& one : *TRY(list_of(json, "left_out"))) {
    LeftOut left;
    left.algorithm = TRY(text_of(one, "algorithm"));
    left.why = TRY(text_of(one, "why"));
    table.left_out.push_back(std::move(left));
  }
  for (const Json& one : *TRY(list_of(json, "tests"))) {
    AlgorithmTest test;
    test.name = TRY(text_of(one, "algorithm"));
    for (const Json& size : *TRY(list_of(one, "sizes"))) {
      test.sizes.push_back(TRY(size_from_json(size)));
    }
    table.tests.push_back(std::move(test));
  }
  if (TRY(text_of(json, "hash")) != table_hash(table)) {
    return mistake("the hash is not that of the rows");
  }
  return table;
}

std::string table_text(const BackendTable& table, const std::string& indent) {
  std::string out;
  Bytes from = 0;
  for (const TableRow& row : table.rows) {
    const std::string sizes = row.up_to == kAnySize
                                  ? (from == 0 ? "every size" : "beyond " + format_bytes(from))
                                  : "up to " + format_bytes(row.up_to);
    out += fmt::format("{}{:<22}{} {}\n", indent, sizes, table.backend, row.algorithm);
    from = row.up_to;
  }
  for (const AlgorithmTest& test : table.tests) {
    out += fmt::format("{}{:<12}", indent, test.name);
    for (const SizeTest& size : test.sizes) {
      out += size.state == TestState::right
                 ? fmt::format("  {} {:.1f} µs", format_bytes(size.bytes), size.us)
                 : fmt::format("  {} {}", format_bytes(size.bytes), test_state_name(size.state));
    }
    out += "\n";
  }
  for (const LeftOut& one : table.left_out) {
    out += fmt::format("{}without {}: {}\n", indent, one.algorithm, one.why);
  }
  return out;
}

}  // namespace plimsoll
