// Logits of every family against transformers in float32 (tools/make_logit_goldens), and that they
// depend neither on ranks, nor on chunks, nor on what else is in a step.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/json.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_model.h"
#include "tests/worker/rank_group.h"

namespace plimsoll {
namespace {

struct Golden {
  TinyModel shape{.type = DType::q8_0};
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> rows;
  std::vector<std::vector<double>> logits;
};

std::int64_t number(const Json& object, const char* key, std::int64_t fallback) {
  const Json* value = object.find(key);
  if (value == nullptr) return fallback;
  const std::string& text = value->as_string();
  std::int64_t result = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  EXPECT_TRUE(error == std::errc() && end == text.data() + text.size()) << key << " " << text;
  return result;
}

bool says(const Json& object, const char* key, const char* word) {
  const Json* value = object.find(key);
  return value != nullptr && value->as_string() == word;
}

TinyModel read_shape(const Json& json) {
  TinyModel shape;
  EXPECT_TRUE(says(json, "type", "Q8_0"));
  shape.type = DType::q8_0;
  shape.architecture = json.find("architecture")->as_string();
  shape.layers = number(json, "layers", 0);
  shape.hidden = number(json, "hidden", 0);
  shape.heads = number(json, "heads", 0);
  shape.kv_heads = number(json, "kv-heads", 0);
  shape.head_dim = number(json, "head-dim", 0);
  shape.ffn = number(json, "ffn", 0);
  shape.context_length = number(json, "context", 0);
  shape.seed = static_cast<std::uint64_t>(number(json, "seed", 0));
  shape.window = number(json, "window", 0);
  shape.window_pattern = number(json, "window-pattern", 0);
  shape.tied_head = !says(json, "head", "own");
  shape.rope_freqs = says(json, "rope-freqs", "yes");
  return shape;
}

Golden read_golden(const std::string& name) {
  const auto json = parse_json(read_test_file(golden_path("logits/" + name + ".json")));
  EXPECT_TRUE(json) << json.error().message;
  Golden golden;
  golden.shape = read_shape(*json->find("shape"));
  for (const Json& token : json->find("tokens")->as_array()) {
    golden.tokens.push_back(static_cast<std::int32_t>(token.as_int()));
  }
  for (const Json& row : json->find("rows")->as_array()) golden.rows.push_back(row.as_int());
  for (const Json& row : json->find("logits")->as_array()) {
    std::vector<double>& values = golden.logits.emplace_back();
    for (const Json& value : row.as_array()) values.push_back(value.as_double());
  }
  return golden;
}

using Logits = std::vector<std::vector<float>>;

double largest_difference(const Logits& ours, const Golden& golden) {
  double difference = 0;
  for (std::size_t i = 0; i < golden.rows.size(); ++i) {
    const std::vector<float>& row = ours[static_cast<std::size_t>(golden.rows[i])];
    EXPECT_EQ(row.size(), golden.logits[i].size());
    for (std::size_t t = 0; t < row.size(); ++t) {
      const double one = std::abs(static_cast<double>(row[t]) - golden.logits[i][t]);
      difference = one <= difference ? difference : one;  // NaN is the largest
    }
  }
  return difference;
}

// After every token, in chunks, beside another sequence where asked.
Logits run(RankGroup& group, const std::vector<std::int32_t>& tokens, std::size_t chunk,
           bool beside_another = false) {
  Logits rows;
  std::vector<std::int32_t> other(tokens.rbegin(), tokens.rend());
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const std::size_t end = std::min(begin + chunk, tokens.size());
    StepPlan plan;
    if (beside_another) {
      append_rows(plan, {.tokens = other, .begin = begin, .end = end, .first_block = 20});
    }
    append_rows(plan, {.tokens = tokens,
                       .begin = begin,
                       .end = end,
                       .first_block = 3,
                       .logit_rows = end - begin});
    for (auto& row : group.run(plan)) rows.push_back(std::move(row));
  }
  return rows;
}

class GoldenLogits : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = read_golden(GetParam());
    const auto path = write_tiny_model(golden_.shape, folder_.path());
    ASSERT_TRUE(path) << path.error().message;
    model_ = *path;
  }
  TempFolder folder_;
  Golden golden_;
  std::filesystem::path model_;
};

TEST_P(GoldenLogits, AgreeWithTransformersInFloat32) {
  for (const int ranks : {1, 2}) {
    RankGroup exact({.model = model_, .ranks = ranks, .activations = Activations::f32});
    if (testing::Test::HasFatalFailure()) return;
    // Keys and values are rounded to f16 here and not there.
    EXPECT_LT(largest_difference(run(exact, golden_.tokens, 72), golden_), 5e-3);
    RankGroup fast({.model = model_, .ranks = ranks});
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_LT(largest_difference(run(fast, golden_.tokens, 72), golden_), 0.25);
  }
}

TEST_P(GoldenLogits, OfEveryInstructionSetAgree) {
  for (const CpuPath path : {CpuPath::scalar, CpuPath::avx2, CpuPath::avx512}) {
    if (!cpu_path_runs_here(path)) continue;
    SCOPED_TRACE(cpu_path_name(path));
    RankGroup group({.model = model_, .activations = Activations::f32, .path = path});
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_LT(largest_difference(run(group, golden_.tokens, 72), golden_), 5e-3);
  }
}

TEST_P(GoldenLogits, DependNeitherOnRanksNorOnChunksNorOnNeighbours) {
  for (const Activations activations : {Activations::int8, Activations::f32}) {
    RankGroup alone({.model = model_, .activations = activations});
    if (testing::Test::HasFatalFailure()) return;
    const Logits whole = run(alone, golden_.tokens, 72);
    for (const int ranks : {1, 2, 3}) {
      RankGroup group({.model = model_, .ranks = ranks, .threads = 2, .activations = activations});
      if (testing::Test::HasFatalFailure()) return;
      EXPECT_EQ(run(group, golden_.tokens, 72), whole) << ranks << " ranks";
      EXPECT_EQ(run(group, golden_.tokens, 1), whole) << ranks << " ranks, one by one";
      EXPECT_EQ(run(group, golden_.tokens, 13, true), whole) << ranks << " ranks, beside another";
    }
  }
}

TEST_P(GoldenLogits, AnInt8CacheStaysNear) {
  for (const int ranks : {1, 2}) {
    RankGroup group({.model = model_,
                     .ranks = ranks,
                     .activations = Activations::f32,
                     .kv_type = KvType::int8});
    if (testing::Test::HasFatalFailure()) return;
    const Logits whole = run(group, golden_.tokens, 72);
    EXPECT_LT(largest_difference(whole, golden_), 0.25);
    EXPECT_EQ(run(group, golden_.tokens, 13, true), whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenLogits,
                         testing::Values("llama3", "mistral", "qwen2", "qwen3", "gemma3"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace plimsoll
