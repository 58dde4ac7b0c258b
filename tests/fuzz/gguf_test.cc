// Fuzz target: GGUF headers, and what follows from them (the model's shape and its sharding).
#include "shared/model/gguf.h"

#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/check.h"
#include "shared/model/shard_plan.h"
#include "tests/support/fuzz.h"
#include "tests/support/gguf_bytes.h"
#include "tools/tiny_model/tiny_model.h"

namespace plimsoll {
namespace {

// Bytes that `value` holds outside itself, roughly: what a hostile count could have asked for.
std::size_t held_bytes(const GgufValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return text->capacity();
  if (const auto* flags = std::get_if<std::vector<bool>>(&value)) return flags->capacity() / 8;
  if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&value)) {
    return ints->capacity() * sizeof(std::int64_t);
  }
  if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
    return floats->capacity() * sizeof(double);
  }
  std::size_t sum = 0;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    sum = texts->capacity() * sizeof(std::string);
    for (const std::string& text : *texts) sum += text.capacity();
  }
  return sum;
}

void fuzz_one(std::span<const std::byte> bytes) {
  const auto file = GgufFile::parse(bytes);
  if (!file) {
    CHECK(!file.error().message.empty());
    return;
  }
  // An array element takes at most eight times what the file spends on it (u8 held as int64), a
  // string at most 48 bytes for the eight of its length.
  std::size_t held = 0;
  for (const auto& [key, value] : file->metadata()) held += held_bytes(value);
  CHECK(held <= 16 * bytes.size() + 4096);
  for (const auto& [name, weight] : file->weights().all()) {
    CHECK(!weight.shape.empty());
    CHECK(file->bytes_of(weight).size() == static_cast<std::size_t>(weight.bytes));
    CHECK(stored_bytes(weight.dtype, weight.rows() * weight.cols()) == weight.bytes);
  }
  const auto spec = read_model_spec(*file);
  if (!spec) return;
  for (const std::int64_t tp : {1, 2, 3, 7}) {
    const auto plan = plan_shards(*spec, tp);
    if (!plan) continue;
    for (const RankShard& rank : plan->ranks) CHECK(rank_weights(*spec, rank).bytes() > 0);
  }
}

std::vector<std::string> seeds() {
  const TinyModel smallest{.type = DType::q4_0,
                           .layers = 1,
                           .hidden = 32,
                           .heads = 2,
                           .kv_heads = 1,
                           .head_dim = 16,
                           .ffn = 32};
  GgufBytes every_type;
  every_type.start(1, 6).text("u8").u32(0).number(std::uint8_t{1}).text("i64").u32(11).u64(2);
  every_type.text("f64").u32(12).number(0.5).text("bool").u32(7).number(std::uint8_t{1});
  every_type.text("ints").u32(9).u32(2).u64(2).number(std::uint32_t{7});
  every_type.text("texts").u32(9).u32(8).u64(2).text("a").text("b");
  every_type.tensor("t", {32, 2}, 3, 0).pad().zeros(40);
  return {make_tiny_model(smallest).value(), every_type.text(),
          GgufBytes().start(0, 1).int_pair("general.alignment", 64).text()};
}

TEST(FuzzGguf, AMutatedFileIsReadOrRefused) {
  FuzzOptions options;
  options.dictionary = {"GGUF",
                        "llama.",
                        "general.alignment",
                        "split.count",
                        ".weight",
                        "llama.block_count",
                        "llama.attention.head_count_kv"};
  const FuzzReport report = fuzz_corpus(seeds(), options, fuzz_one);
  EXPECT_GT(report.inputs, 100U);
}

}  // namespace
}  // namespace plimsoll

PLIMSOLL_FUZZ_MAIN(plimsoll::fuzz_one)
