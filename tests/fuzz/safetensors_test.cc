// Hostile safetensors headers and indexes: refused with a message, or tensors that fill the file.
#include "shared/model/safetensors.h"

#include <cstring>

#include <gtest/gtest.h>

#include "shared/base/text.h"
#include "shared/model/hf_folder.h"
#include "tests/support/fuzz.h"

namespace plimsoll {
namespace {

std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, '\0');
}

void fuzz_safetensors(std::span<const std::byte> bytes) {
  const auto header = parse_safetensors(bytes, bytes.size());
  if (!header) {
    EXPECT_TRUE(is_utf8(header.error().message));
    EXPECT_LT(header.error().message.size(), 1000U);
    return;
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  // A file that ends with its header has none of the data.
  const std::uint64_t end =
      bytes.size() == sizeof length + length ? std::uint64_t{1} << 51U : bytes.size();
  std::uint64_t sum = 0;
  ASSERT_EQ(header->begins.size(), header->tensors.size());
  for (std::size_t i = 0; i < header->tensors.size(); ++i) {
    const auto stored = static_cast<std::uint64_t>(header->tensors[i].bytes);
    sum += stored;
    EXPECT_LE(header->begins[i] + stored, end);
  }
  EXPECT_LE(sum, end);
  // Whatever the names and shapes, they are classified or refused.
  ModelSpec model;
  model.layers = 2;
  model.hidden = 4;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 2;
  model.ffn = 8;
  model.vocab = 16;
  WeightGroups groups(model);
  for (const Tensor& tensor : header->tensors) {
    const Status added = groups.add_hf(tensor);
    EXPECT_TRUE(added || is_utf8(added.error().message));
  }
}
PLIMSOLL_FUZZ_MAIN(fuzz_safetensors)

void fuzz_index(std::span<const std::byte> bytes) {
  const auto index =
      parse_safetensors_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!index) {
    EXPECT_TRUE(is_utf8(index.error().message));
    return;
  }
  for (const std::string& file : index->files) {
    EXPECT_EQ(file.find('/'), std::string::npos);
    EXPECT_NE(file, "..");
  }
}

TEST(FuzzSafetensors, HeadersAreRefusedOrAddUp) {
  const std::vector<std::string> seeds = {
      file_of("{}", 0), file_of(R"({"__metadata__":{"format":"pt"}})", 0),
      file_of(R"({"model.norm.weight":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})", 8),
      file_of(R"({"model.layers.0.self_attn.q_proj.weight":{"dtype":"F32","shape":[4,4],)"
              R"("data_offsets":[0,64]},"model.layers.1.mlp.down_proj.weight_packed":)"
              R"({"dtype":"I32","shape":[4,1],"data_offsets":[64,80]}})",
              80)};
  FuzzOptions options;
  options.seed = 20260226;
  options.dictionary = {"\"shape\":[",
                        "\"data_offsets\":[",
                        "\"dtype\":\"F4\"",
                        "9223372036854775807",
                        "-1",
                        "1e99",
                        ".weight_scale",
                        ".layers.99999999999999999999.",
                        "[]",
                        "experts.0."};
  EXPECT_GT(fuzz_corpus(seeds, options, fuzz_safetensors).inputs, 100U);
}

TEST(FuzzSafetensors, IndexesAreRefusedOrNamePlainFiles) {
  const std::vector<std::string> seeds = {
      R"({"metadata":{"total_size":8},"weight_map":{"a":"model-1.safetensors"}})",
      R"({"weight_map":{}})"};
  FuzzOptions options;
  options.seed = 20260226;
  options.dictionary = {"../", "/", "\\u0000", "weight_map", ".."};
  EXPECT_GT(fuzz_corpus(seeds, options, fuzz_index).inputs, 100U);
}

}  // namespace
}  // namespace plimsoll
