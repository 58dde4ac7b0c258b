// Hostile config.json files: refused with a message, or a model that can be divided and added up.
#include <gtest/gtest.h>

#include "shared/base/text.h"
#include "shared/model/derive_weights.h"
#include "shared/model/kv_shape.h"
#include "shared/model/weight_share.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

// More would make one input cost seconds: a config may ask for 4,096 layers.
constexpr std::int64_t kLayersDerived = 200;

void fuzz_config(std::span<const std::byte> bytes) {
  auto config =
      parse_hf_config(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (!config) {
    EXPECT_TRUE(is_utf8(config.error().message)) << config.error().message;
    return;
  }
  if (config->spec.layers > kLayersDerived) return;
  auto groups = derive_weights(*config);
  if (!groups) {
    EXPECT_FALSE(groups.error().message.empty());
    return;
  }
  ModelSpec model = config->spec;
  model.groups = std::move(*groups);
  for (const std::int64_t tp : {1, 3, 8}) {
    const auto shards = plan_shards(model, tp);
    if (!shards) continue;
    for (std::size_t rank = 0; rank < shards->ranks.size(); ++rank) {
      const RankShare share = rank_share(model, *shards, rank, {.mtp_loaded = true});
      EXPECT_GE(share.total(), 0);
      EXPECT_LE(share.sharded() + share.replicated(), model.weight_bytes());
      EXPECT_GT(kv_token_bytes(model, shards->ranks[rank], KvType::f16), 0);
    }
  }
}
PLIMSOLL_FUZZ_MAIN(fuzz_config)

TEST(FuzzModelConfig, IsRefusedOrCanBeDivided) {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("models"))) {
    const auto file = parse_json(read_test_file(entry.path()));
    ASSERT_TRUE(file);
    Json config = *file->find("config");
    // Fewer layers, for more inputs in the time.
    config.set("num_hidden_layers", 3);
    if (config.find("text_config") != nullptr) {
      Json text = *config.find("text_config");
      text.set("num_hidden_layers", 3);
      config.set("text_config", text);
    }
    seeds.push_back(dump_json(config));
  }
  FuzzOptions options;
  options.seed = 20260226;
  options.dictionary = {"0",           "1048576",         "-1",      "null",
                        "2147483647",  "\"fp8\"",         "\"awq\"", "\"re:(a*)*b\"",
                        "true",        "[128,128]",       "1e308",   "\"deepseek_v3\"",
                        "\"mixtral\"", "\"gemma3_text\"", "{",       "\"quant_method\":"};
  EXPECT_GT(fuzz_corpus(seeds, options, fuzz_config).inputs, 50U);
}

}  // namespace
}  // namespace plimsoll
