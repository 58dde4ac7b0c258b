// Public models from their config.json: bytes, KV bytes a token and shares of ranks, as published.
//
// One file a model under tests/golden/models: `source` says where the expected figures are from.
#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "shared/base/json.h"
#include "shared/model/kv_shape.h"
#include "shared/model/model_source.h"
#include "shared/model/weight_share.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

constexpr double kGibRounding = 0.0051;  // figures in GiB have two decimals

double gib(Bytes bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); }

bool is_vision(WeightPart part) {
  return part == WeightPart::vision || part == WeightPart::projector;
}

// Elements of each type; a tensor's shape times how many there are.
std::map<std::string, std::int64_t> elements_by_type(const ModelSpec& model) {
  std::map<std::string, std::int64_t> sums;
  for (const WeightGroup& group : model.groups) {
    std::int64_t elements = group.count;
    for (const std::int64_t size : group.shape) elements *= size;
    sums[group.type] += elements;
  }
  return sums;
}

Bytes part_bytes(const ModelSpec& model, const std::string& part) {
  Bytes sum = 0;
  for (const WeightGroup& group : model.groups) {
    if (part_name(group.part) == part) sum += group.bytes_of_all();
  }
  return sum;
}

Bytes text_bytes(const ModelSpec& model) {
  Bytes sum = 0;
  for (const WeightGroup& group : model.groups) {
    if (!is_vision(group.part)) sum += group.bytes_of_all();
  }
  return sum;
}

std::int64_t number(const Json& json, const char* key) { return json.find(key)->as_int(); }

KvType kv_type(const Json& json) { return *kv_type_from_name(json.find("type")->as_string()); }

void expect_near_bytes(double found, double expected, double percent) {
  EXPECT_LE(std::abs(found - expected), expected * percent / 100) << found << " " << expected;
}

void check_weights(const ModelSpec& model, const Json& expect) {
  if (const Json* elements = expect.find("elements")) {
    std::map<std::string, std::int64_t> expected;
    for (const auto& [type, count] : elements->as_object()) expected[type] = count.as_int();
    EXPECT_EQ(elements_by_type(model), expected);
  }
  if (const Json* parts = expect.find("parts")) {
    for (const auto& [part, bytes] : parts->as_object()) {
      EXPECT_EQ(part_bytes(model, part), bytes.as_int()) << part;
    }
  }
  if (const Json* bytes = expect.find("text_bytes")) {
    EXPECT_EQ(text_bytes(model), bytes->as_int());
  }
  if (const Json* bytes = expect.find("bytes")) {
    EXPECT_EQ(model.weight_bytes(), bytes->as_int());
  }
  if (const Json* near = expect.find("near_bytes")) {
    expect_near_bytes(static_cast<double>(model.weight_bytes()), near->find("bytes")->as_double(),
                      near->find("percent")->as_double());
  }
}

void check_kv(const ModelSpec& model, const Json& expect) {
  for (const Json& kv : expect.find("kv")->as_array()) {
    const auto shards = plan_shards(model, number(kv, "tp"));
    ASSERT_TRUE(shards) << shards.error().message;
    for (const RankShard& shard : shards->ranks) {
      EXPECT_EQ(kv_token_bytes(model, shard, kv_type(kv)), number(kv, "bytes_per_token"));
    }
    EXPECT_EQ(kv_copies(model, *shards), kv.find("copies")->as_double());
  }
  if (const Json* sequences = expect.find("sequences")) {
    for (const Json& sequence : sequences->as_array()) {
      const auto shards = plan_shards(model, number(sequence, "tp"));
      ASSERT_TRUE(shards) << shards.error().message;
      EXPECT_EQ(
          kv_sequence_bytes(model, shards->ranks[0], kv_type(sequence), number(sequence, "tokens")),
          number(sequence, "bytes"));
    }
  }
  if (const Json* tokens = expect.find("tokens")) {
    for (const Json& held : tokens->as_array()) {
      const auto shards = plan_shards(model, number(held, "tp"));
      ASSERT_TRUE(shards) << shards.error().message;
      const Bytes bytes =
          number(held, "tokens") * kv_token_bytes(model, shards->ranks[0], kv_type(held));
      EXPECT_NEAR(gib(bytes), held.find("gib")->as_double(), kGibRounding);
    }
  }
}

void check_share(const RankShare& share, const Json& rank) {
  Bytes sharded = 0;
  Bytes replicated = 0;
  for (const PartShare& part : share.parts) {
    if (is_vision(part.part)) continue;
    sharded += part.sharded;
    replicated += part.replicated;
  }
  const auto check = [&](const char* exact, const char* rounded, Bytes bytes) {
    if (const Json* expected = rank.find(exact)) {
      EXPECT_EQ(bytes, expected->as_int()) << exact;
    }
    if (const Json* expected = rank.find(rounded)) {
      EXPECT_NEAR(gib(bytes), expected->as_double(), kGibRounding) << rounded;
    }
  };
  check("sharded", "sharded_gib", sharded);
  check("replicated", "replicated_gib", replicated);
  check("absorbed", "absorbed_gib", share.absorbed);
  check("total", "total_gib", share.total());
  if (const Json* near = rank.find("near_gib")) {
    expect_near_bytes(gib(share.total()), near->as_double(),
                      rank.find("near_percent")->as_double());
  }
}

void check_ranks(const ModelSpec& model, const Json& expect) {
  const Json* ranks = expect.find("ranks");
  if (ranks == nullptr) return;
  for (const Json& rank : ranks->as_array()) {
    const auto shards = plan_shards(model, number(rank, "tp"));
    ASSERT_TRUE(shards) << shards.error().message;
    const WeightPlacement placement{.vision_sharded = rank.find("vision_sharded") != nullptr};
    for (std::size_t i = 0; i < shards->ranks.size(); ++i) {
      check_share(rank_share(model, *shards, i, placement), rank);
    }
  }
}

TEST(GoldenModels, AreAsLargeAsPublished) {
  std::size_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("models"))) {
    SCOPED_TRACE(entry.path().filename().string());
    const auto file = parse_json(read_test_file(entry.path()));
    ASSERT_TRUE(file) << file.error().message;
    const auto model = spec_of_config(*file->find("config"), entry.path().stem().string());
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->weight_source, WeightSource::config);
    EXPECT_FALSE(model->assumptions.empty());
    for (const WeightGroup& group : model->groups) EXPECT_NE(group.part, WeightPart::other);
    const Json& expect = *file->find("expect");
    check_weights(*model, expect);
    check_kv(*model, expect);
    check_ranks(*model, expect);
    ++models;
  }
  EXPECT_GE(models, 20U);
}

// A rank holds its share of each sharded byte and all of each replicated one, at every tp.
TEST(GoldenModels, RanksTogetherHoldEverything) {
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("models"))) {
    const auto file = parse_json(read_test_file(entry.path()));
    ASSERT_TRUE(file);
    const auto model = spec_of_config(*file->find("config"), "");
    ASSERT_TRUE(model) << model.error().message;
    const WeightPlacement everything{
        .vision_sharded = true, .mtp_loaded = true, .absorbed_copies = false};
    for (std::int64_t tp = 1; tp <= 16; ++tp) {
      const auto shards = plan_shards(*model, tp);
      if (!shards) continue;
      SCOPED_TRACE(entry.path().filename().string() + " tp " + std::to_string(tp));
      Bytes sharded = 0;
      Bytes most = 0;
      for (std::size_t rank = 0; rank < shards->ranks.size(); ++rank) {
        const RankShare share = rank_share(*model, *shards, rank, everything);
        sharded += share.sharded();
        most = std::max(most, share.total());
      }
      const RankShare first = rank_share(*model, *shards, 0, everything);
      // KV heads that are there more than once count as replicated, so this is a lower bound; a
      // scale that two ranks need is held by both.
      EXPECT_LE(sharded + first.replicated(), model->weight_bytes() * 1001 / 1000);
      EXPECT_GE(sharded + tp * first.replicated(), model->weight_bytes());
      EXPECT_GE(most * tp, model->weight_bytes());
    }
  }
}

}  // namespace
}  // namespace plimsoll
