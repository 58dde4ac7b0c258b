#include "tools/tiny_model/tiny_model.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/dequantise.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"
#include "tests/support/tiny_model.h"

namespace plimsoll {
namespace {

class TinyModelOfType : public testing::TestWithParam<DType> {};

TEST_P(TinyModelOfType, CanBeReadAndSharded) {
  TinyModel shape;
  shape.type = GetParam();
  shape.hidden = 256;
  shape.ffn = 512;
  const auto bytes = make_tiny_model(shape);
  ASSERT_TRUE(bytes) << bytes.error().message;
  const auto file = GgufFile::parse(std::as_bytes(std::span(*bytes)));
  ASSERT_TRUE(file) << file.error().message;
  const auto spec = read_model_spec(*file);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->file_type, dtype_info(shape.type).name);
  // A K-quant's block is all heads of the tiny model, so only the others can be split.
  const bool k_quant = dtype_info(shape.type).block_length == 256;
  EXPECT_EQ(plan_shards(*spec, 2).has_value(), !k_quant);
  TinyModel wide = shape;
  wide.head_dim = 64;
  const auto wide_bytes = make_tiny_model(wide).value();
  const auto wide_file = GgufFile::parse(std::as_bytes(std::span(wide_bytes)));
  const auto plan = plan_shards(read_model_spec(*wide_file).value(), 2);
  EXPECT_TRUE(plan) << plan.error().message;
}

INSTANTIATE_TEST_SUITE_P(Types, TinyModelOfType,
                         testing::Values(DType::f32, DType::f16, DType::bf16, DType::q4_0,
                                         DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                                         DType::q4_k, DType::q5_k, DType::q6_k),
                         [](const auto& type) { return std::string(dtype_info(type.param).name); });

TEST(TinyModel, IsTheSameForTheSameSeedOnly) {
  TinyModel other;
  other.seed = 2;
  EXPECT_EQ(make_tiny_model({}).value(), make_tiny_model({}).value());
  EXPECT_NE(make_tiny_model({}).value(), make_tiny_model(other).value());
}

TEST(TinyModel, LayersMayHaveTheWeightsOfTheFirst) {
  const TinyModel shape{.architecture = "qwen3", .layers = 5, .same_layers = true};
  const std::string bytes = make_tiny_model(shape).value();
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file) << file.error().message;
  const auto spec = read_model_spec(*file);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->layers, 5);
  for (const char* name : {"ffn_down.weight", "attn_q_norm.weight"}) {
    const WeightInfo* first = file->weights().find(std::string("blk.0.") + name);
    const WeightInfo* last = file->weights().find(std::string("blk.4.") + name);
    ASSERT_TRUE(first != nullptr && last != nullptr) << name;
    EXPECT_NE(first->offset, last->offset) << name;
    EXPECT_TRUE(std::ranges::equal(file->bytes_of(*first), file->bytes_of(*last))) << name;
  }
}

TEST(TinyModel, LinearsKeepTheSizeOfWhatGoesThroughThem) {
  const std::string bytes = make_tiny_model({}).value();
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file) << file.error().message;
  const WeightInfo& weight = *file->weights().find("blk.0.ffn_down.weight");
  std::vector<float> values(static_cast<std::size_t>(weight.rows() * weight.cols()));
  dequantise(weight.dtype, file->bytes_of(weight).data(), std::ssize(values), values.data());
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  EXPECT_NEAR(squares / static_cast<double>(weight.rows()), 1, 0.05);
}

TEST(TinyModel, KQuantsHaveAStandInWhereRowsAreTooShort) {
  const TinyModel shape{.type = DType::q6_k, .hidden = 128, .ffn = 256};
  const std::string bytes = make_tiny_model(shape).value();
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->weights().find("blk.0.ffn_down.weight")->dtype, DType::q6_k);
  EXPECT_EQ(file->weights().find("blk.0.ffn_up.weight")->dtype, DType::q8_0);
}

TEST(TinyModel, TakesTheTokenizerOfAnotherFile) {
  const std::filesystem::path folder = testing::TempDir();
  const auto first = write_tiny_model({}, folder);
  ASSERT_TRUE(first) << first.error().message;
  TinyModel shape;
  shape.vocab_from = *first;
  EXPECT_EQ(make_tiny_model(shape).value().size(), std::filesystem::file_size(*first));
  shape.vocab_from = folder / "absent.gguf";
  const auto absent = make_tiny_model(shape);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::not_found);
}

TEST(TinyModel, RefusesShapesThatCannotBeStored) {
  EXPECT_FALSE(make_tiny_model({.hidden = 100}));
  EXPECT_FALSE(make_tiny_model({.layers = 0}));
  EXPECT_FALSE(make_tiny_model({.heads = 8, .kv_heads = 3}));
  EXPECT_FALSE(make_tiny_model({.head_dim = 31}));
  EXPECT_TRUE(make_tiny_model({.type = DType::f16, .hidden = 100, .head_dim = 10}));
}

}  // namespace
}  // namespace plimsoll
