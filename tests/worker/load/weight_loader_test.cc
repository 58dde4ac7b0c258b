#include "worker/load/weight_loader.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/dequantise.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace plimsoll {
namespace {

struct Opened {
  TempFolder folder;
  std::optional<GgufFile> file;
  ModelSpec spec;
  ShardPlan shards;
  std::unique_ptr<Backend> backend;
};

void open(const TinyModel& shape, std::int64_t tp, Opened& out) {
  const auto path = write_tiny_model(shape, out.folder.path());
  ASSERT_TRUE(path) << path.error().message;
  auto file = GgufFile::open(*path);
  ASSERT_TRUE(file) << file.error().message;
  out.file.emplace(std::move(*file));
  auto spec = read_model_spec(*out.file);
  ASSERT_TRUE(spec) << spec.error().message;
  out.spec = std::move(*spec);
  auto shards = plan_shards(out.spec, tp);
  ASSERT_TRUE(shards) << shards.error().message;
  out.shards = std::move(*shards);
  CpuBackendOptions options;
  options.threads = 2;
  options.spin = false;
  auto backend = make_cpu_backend(options);
  ASSERT_TRUE(backend) << backend.error().message;
  out.backend = std::move(*backend);
}

RankPlan weights_alone(Bytes bytes) {
  RankPlan plan;
  plan.rows.push_back({.term = Term::weights, .bytes = bytes, .formula = {}});
  return plan;
}

void expect_complete(const Opened& opened, const RankShard& shard, const ModelWeights& weights) {
  const std::int64_t head_dim = opened.spec.head_dim;
  EXPECT_EQ(weights.embedding_table().rows, opened.spec.vocab);
  EXPECT_EQ(weights.head.rows, opened.spec.tied_head ? opened.spec.vocab : shard.vocab.size());
  EXPECT_NE(weights.output_norm, nullptr);
  EXPECT_NE(weights.rope_freqs, nullptr);
  for (const LayerWeights& layer : weights.layers) {
    EXPECT_EQ(layer.qkv.rows, (shard.heads.size() + 2 * shard.kv_heads.size()) * head_dim);
    EXPECT_EQ(layer.qkv.parts.size(), 3U);
    EXPECT_EQ(layer.attn_output.cols, shard.heads.size() * head_dim);
    EXPECT_EQ(layer.gate_up.rows, 2 * shard.ffn.size());
    EXPECT_EQ(layer.ffn_down.cols, shard.ffn.size());
    EXPECT_NE(layer.attn_norm, nullptr);
    EXPECT_NE(layer.ffn_norm, nullptr);
  }
}

TEST(WeightLoader, FillsEveryPlaceOfTheGraphAndNoMoreThanThePlan) {
  for (const bool tied : {true, false}) {
    for (const std::int64_t tp : {1, 3}) {
      Opened opened;
      ASSERT_NO_FATAL_FAILURE(
          open({.type = DType::q4_1, .tied_head = tied, .rope_freqs = true}, tp, opened));
      for (const RankShard& shard : opened.shards.ranks) {
        const Bytes planned = rank_weights(opened.spec, shard).bytes();
        auto arena = Arena::create(weights_alone(planned));
        ASSERT_TRUE(arena);
        std::vector<LoadProgress> reports;
        const auto weights = load_weights(*opened.file, opened.spec, shard, *opened.backend, *arena,
                                          ArenaWeights::to_pack,
                                          [&](const LoadProgress& at) { reports.push_back(at); });
        ASSERT_TRUE(weights) << weights.error().message;
        EXPECT_LE(arena->taken(Term::weights), planned);
        EXPECT_EQ(reports.back().done, planned);
        EXPECT_EQ(reports.back().total, planned);
        expect_complete(opened, shard, *weights);
      }
    }
  }
}

TEST(WeightLoader, PackedOnesAreFoundWhereTheyWerePackedAndNotWrittenAgain) {
  Opened opened;
  ASSERT_NO_FATAL_FAILURE(
      open({.type = DType::q4_1, .tied_head = false, .rope_freqs = true}, 2, opened));
  const RankShard& shard = opened.shards.ranks[1];
  const Bytes planned = rank_weights(opened.spec, shard).bytes();
  const auto memory = MappedMemory::create({.bytes = planned, .huge_pages = false, .purpose = "a"});
  ASSERT_TRUE(memory);
  const auto load = [&](ArenaWeights state) {
    auto arena = Arena::create(weights_alone(planned), memory->bytes());
    EXPECT_TRUE(arena);
    Bytes done = 0;
    auto weights = load_weights(*opened.file, opened.spec, shard, *opened.backend, *arena, state,
                                [&](const LoadProgress& at) { done = at.done; });
    EXPECT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(done, planned);
    return std::move(*weights);
  };
  const ModelWeights packed = load(ArenaWeights::to_pack);
  const std::vector<std::byte> bytes(memory->bytes().begin(), memory->bytes().end());
  ASSERT_EQ(::mprotect(memory->bytes().data(), memory->bytes().size(), PROT_READ), 0);
  const ModelWeights found = load(ArenaWeights::packed);
  EXPECT_TRUE(std::ranges::equal(memory->bytes(), bytes));
  expect_complete(opened, shard, found);
  for (std::size_t i = 0; i < packed.layers.size(); ++i) {
    const auto& [was, is] = std::pair(packed.layers[i], found.layers[i]);
    EXPECT_EQ(is.attn_norm, was.attn_norm);
    for (const auto& [a, b] : {std::pair(is.qkv, was.qkv), std::pair(is.ffn_down, was.ffn_down)}) {
      ASSERT_EQ(a.parts.size(), b.parts.size());
      EXPECT_EQ(a.rows, b.rows);
      EXPECT_EQ(a.cols, b.cols);
      EXPECT_EQ(a.segment_cols, b.segment_cols);
      for (std::size_t part = 0; part < a.parts.size(); ++part) {
        EXPECT_EQ(a.parts[part].dtype, b.parts[part].dtype);
        EXPECT_EQ(a.parts[part].rows, b.parts[part].rows);
        EXPECT_EQ(a.parts[part].cols, b.parts[part].cols);
        EXPECT_EQ(a.parts[part].data, b.parts[part].data);
      }
    }
  }
}

TEST(WeightLoader, NormsAreTheFilesOwn) {
  Opened opened;
  ASSERT_NO_FATAL_FAILURE(open({}, 1, opened));
  const RankShard& shard = opened.shards.ranks[0];
  auto arena = Arena::create(weights_alone(rank_weights(opened.spec, shard).bytes()));
  ASSERT_TRUE(arena);
  const auto weights = load_weights(*opened.file, opened.spec, shard, *opened.backend, *arena,
                                    ArenaWeights::to_pack, [](const LoadProgress&) {});
  ASSERT_TRUE(weights) << weights.error().message;
  const WeightInfo* info = opened.spec.weights.find("blk.1.ffn_norm.weight");
  ASSERT_NE(info, nullptr);
  std::vector<float> expected(static_cast<std::size_t>(info->cols()));
  dequantise(info->dtype, opened.file->bytes_of(*info).data(), info->cols(), expected.data());
  const float* loaded = weights->layers[1].ffn_norm;
  EXPECT_EQ(std::vector<float>(loaded, loaded + expected.size()), expected);
}

TEST(WeightLoader, APlanThatIsTooShortNamesTheWeight) {
  Opened opened;
  ASSERT_NO_FATAL_FAILURE(open({}, 1, opened));
  auto arena = Arena::create(weights_alone(100'000));
  ASSERT_TRUE(arena);
  const auto weights =
      load_weights(*opened.file, opened.spec, opened.shards.ranks[0], *opened.backend, *arena,
                   ArenaWeights::to_pack, [](const LoadProgress&) {});
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, Code::internal);
  EXPECT_EQ(weights.error().message.rfind("load ", 0), 0U) << weights.error().message;
}

}  // namespace
}  // namespace plimsoll
