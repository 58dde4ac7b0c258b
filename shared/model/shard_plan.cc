#include "shared/model/shard_plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/base/check.h"

namespace plimsoll {
namespace {

// The feed-forward is cut in units of blocks of activations. In dense layers long units cost less,
// since sums are widened to f64 after each; but there must be enough of them to balance the ranks.
constexpr std::int64_t kFfnUnitMin = 32;
constexpr std::int64_t kFfnUnitMax = 256;
constexpr std::int64_t kFfnUnitsWanted = 12;

const WeightInfo& layer_weight(const ModelSpec& spec, std::int64_t layer, std::string_view name) {
  const WeightInfo* weight = spec.weights.find(fmt::format("blk.{}.{}.weight", layer, name));
  CHECK(weight != nullptr);
  return *weight;
}

// The least number of columns at whose multiples every weight can be cut that `by` divides so.
std::int64_t column_unit(const ModelSpec& spec, CutBy by) {
  std::int64_t unit = 1;
  for (const WeightGroup& group : spec.groups) {
    if (group.cut.by == by && group.cut.columns) unit = std::lcm(unit, group.cut.unit);
  }
  return unit;
}

Bytes bytes_cut_by(const ModelSpec& spec, CutBy by) {
  Bytes sum = 0;
  for (const WeightGroup& group : spec.groups) {
    if (group.cut.by == by) sum += group.bytes_of_all();
  }
  return sum;
}

// `count` units over `ranks`, the first ranks one more where it does not divide.
std::vector<Range> split_evenly(std::int64_t count, std::int64_t ranks) {
  std::vector<Range> ranges;
  std::int64_t begin = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t end = begin + count / ranks + (rank < count % ranks ? 1 : 0);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

// Units to elements; the last unit may be a part of one.
Range scaled(Range units, std::int64_t unit, std::int64_t size) {
  return {std::min(units.begin * unit, size), std::min(units.end * unit, size)};
}

// The most ranks that something allows, and why.
struct Limit {
  std::int64_t tp_max = 0;
  std::string why;
};

// The columns of the output projection that belong to a head.
std::int64_t value_dim(const ModelSpec& spec) {
  return spec.latent ? spec.latent->value_dim : spec.head_dim;
}

// Columns of attn_output can be cut at every `block`; heads and KV groups come in units of it.
struct HeadUnits {
  std::int64_t group = 0;      // query heads of a KV head
  std::int64_t head_unit = 0;  // query heads whose columns end on a block
  std::int64_t kv_unit = 0;    // KV heads whose query heads' columns do
};

HeadUnits head_units(const ModelSpec& spec) {
  const std::int64_t block = column_unit(spec, CutBy::heads);
  const std::int64_t group = spec.heads / spec.kv_heads;
  const std::int64_t head = value_dim(spec);
  return {group, block / std::gcd(block, head), block / std::gcd(block, group * head)};
}

Limit head_limit(const ModelSpec& spec, const HeadUnits& units) {
  if (units.head_unit == 1) return {spec.heads, fmt::format("it has {} heads", spec.heads)};
  const std::string why =
      fmt::format("attn_output is stored in blocks of {} columns, and its heads have {}",
                  column_unit(spec, CutBy::heads), value_dim(spec));
  if (units.kv_unit == 1) return {spec.heads / units.head_unit, why};
  return {ceil_div(spec.kv_heads, units.kv_unit), why};
}

// A feed-forward of some kind: of dense layers, of each expert, of the shared experts.
struct FfnKind {
  CutBy by = CutBy::ffn;
  Range RankShard::*range = nullptr;
  const char* words = "";
};
constexpr std::array kFfnKinds = {
    FfnKind{CutBy::ffn, &RankShard::ffn, "its feed-forward has"},
    FfnKind{CutBy::expert_ffn, &RankShard::expert_ffn, "each expert's feed-forward has"},
    FfnKind{CutBy::shared_ffn, &RankShard::shared_ffn, "the shared experts' feed-forward has"},
};

std::int64_t ffn_size(const ModelSpec& spec, CutBy by) {
  if (by == CutBy::expert_ffn) return spec.experts.count == 0 ? 0 : spec.experts.ffn;
  if (by == CutBy::shared_ffn) return spec.experts.shared_ffn;
  return spec.experts.layers == spec.layers ? 0 : spec.ffn;
}

// How feed-forwards are cut.
struct Cutting {
  std::int64_t tp = 1;
  std::int64_t ep = 1;
  bool for_kernels = true;  // of ours, which want units of their own
};

// Over how many ranks one of a kind is cut.
std::int64_t ranks_of(const Cutting& cutting, CutBy by) {
  if (by != CutBy::expert_ffn) return cutting.tp;
  return std::max<std::int64_t>(1, cutting.tp / cutting.ep);
}

std::int64_t ffn_unit_columns(const ModelSpec& spec, CutBy by) {
  std::int64_t unit = kFfnUnitMin;
  if (by == CutBy::ffn) {
    unit = kFfnUnitMax;
    while (unit > kFfnUnitMin && spec.ffn / unit < kFfnUnitsWanted) unit /= 2;
  }
  return std::lcm(unit, column_unit(spec, by));
}

// Columns of a format are divided evenly where they can be; else as ours are.
bool is_even(const ModelSpec& spec, const Cutting& cutting, CutBy by) {
  if (cutting.for_kernels) return false;
  return ffn_size(spec, by) % (ranks_of(cutting, by) * column_unit(spec, by)) == 0;
}

std::int64_t unit_of(const ModelSpec& spec, const Cutting& cutting, CutBy by) {
  return is_even(spec, cutting, by) ? column_unit(spec, by) : ffn_unit_columns(spec, by);
}

Limit ffn_limit(const ModelSpec& spec, const Cutting& cutting, const FfnKind& kind) {
  const std::int64_t unit = unit_of(spec, cutting, kind.by);
  const std::int64_t size = ffn_size(spec, kind.by);
  return {ceil_div(size, unit),
          fmt::format("{} {} columns, which are cut every {}", kind.words, size, unit)};
}

Limit vocab_limit(const ModelSpec& spec) {
  return {
      ceil_div(spec.vocab, kPackedRows),
      fmt::format("its vocabulary has {} rows, which are cut every {}", spec.vocab, kPackedRows)};
}

bool is_shared_whole(const ModelSpec& spec, const Cutting& cutting, const FfnKind& kind) {
  return cutting.ep > 1 && kind.by == CutBy::shared_ffn &&
         ffn_limit(spec, cutting, kind).tp_max < cutting.tp;
}

Status check_ranks(const ModelSpec& spec, const HeadUnits& units, const Cutting& cutting) {
  const std::int64_t tp = cutting.tp;
  if (tp < 1) return invalid(fmt::format("tp is {}; expected 1 or more", tp));
  Limit least = head_limit(spec, units);
  const auto consider = [&](Limit limit) {
    if (limit.tp_max < least.tp_max) least = std::move(limit);
  };
  for (const FfnKind& kind : kFfnKinds) {
    if (ffn_size(spec, kind.by) == 0 || is_shared_whole(spec, cutting, kind)) continue;
    Limit limit = ffn_limit(spec, cutting, kind);
    const std::int64_t ranks = ranks_of(cutting, kind.by);
    if (ranks <= limit.tp_max) continue;
    limit.tp_max *= std::max<std::int64_t>(1, tp / ranks);
    consider(std::move(limit));
  }
  consider(vocab_limit(spec));
  if (tp <= least.tp_max) return {};
  return invalid(fmt::format("tp {} is too many ranks for this model: {}; tp can be 1 to {}", tp,
                             least.why, least.tp_max));
}

void split_groups(const ModelSpec& spec, const HeadUnits& units, std::vector<RankShard>& ranks) {
  const auto split = split_evenly(ceil_div(spec.kv_heads, units.kv_unit), std::ssize(ranks));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Range kv = scaled(split[rank], units.kv_unit, spec.kv_heads);
    ranks[rank].kv_heads = kv;
    ranks[rank].heads = {kv.begin * units.group, kv.end * units.group};
  }
}

// More ranks than KV heads: neighbours hold the same KV head and divide its query heads.
void split_within_groups(const ModelSpec& spec, const HeadUnits& units,
                         std::vector<RankShard>& ranks) {
  const auto sharers = split_evenly(std::ssize(ranks), spec.kv_heads);
  for (std::int64_t kv = 0; kv < spec.kv_heads; ++kv) {
    const Range sharing = sharers[static_cast<std::size_t>(kv)];
    const auto parts = split_evenly(units.group / units.head_unit, sharing.size());
    for (std::int64_t i = 0; i < sharing.size(); ++i) {
      const Range part = parts[static_cast<std::size_t>(i)];
      RankShard& shard = ranks[static_cast<std::size_t>(sharing.begin + i)];
      shard.kv_heads = {kv, kv + 1};
      shard.heads = {kv * units.group + part.begin * units.head_unit,
                     kv * units.group + part.end * units.head_unit};
    }
  }
}

// Units go one by one to the rank that has the fewest bytes so far, attention included.
void balance_ffn(const ModelSpec& spec, const FfnKind& kind, std::vector<RankShard>& ranks) {
  const std::int64_t unit = ffn_unit_columns(spec, kind.by);
  const std::int64_t units = ceil_div(ffn_size(spec, kind.by), unit);
  const Bytes head = bytes_cut_by(spec, CutBy::heads) / spec.heads;
  const Bytes kv_head = bytes_cut_by(spec, CutBy::kv_heads) / spec.kv_heads;
  const Bytes ffn_unit = bytes_cut_by(spec, kind.by) / units;
  struct Load {
    Bytes bytes = 0;
    std::int64_t units = 1;  // so that no rank is left without any
  };
  std::vector<Load> loads;
  loads.reserve(ranks.size());
  for (const RankShard& shard : ranks) {
    loads.push_back(
        {.bytes = shard.heads.size() * head + shard.kv_heads.size() * kv_head + ffn_unit});
  }
  for (std::int64_t left = units - std::ssize(ranks); left > 0; --left) {
    Load& least = *std::ranges::min_element(
        loads, {}, [](const Load& load) { return std::pair(load.bytes, load.units); });
    least.bytes += ffn_unit;
    ++least.units;
  }
  std::int64_t begin = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].*kind.range =
        scaled({begin, begin + loads[rank].units}, unit, ffn_size(spec, kind.by));
    begin += loads[rank].units;
  }
}

void split_evenly_by(const ModelSpec& spec, const FfnKind& kind, std::int64_t unit,
                     std::int64_t over, std::vector<RankShard>& ranks) {
  const std::int64_t size = ffn_size(spec, kind.by);
  const auto split = split_evenly(ceil_div(size, unit), over);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::size_t own = rank % static_cast<std::size_t>(over);
    ranks[rank].*kind.range = scaled(split[own], unit, size);
  }
}

// The kind with the most bytes evens out what attention left uneven; the others are split evenly.
void split_ffn(const ModelSpec& spec, const Cutting& cutting, std::vector<RankShard>& ranks) {
  const auto evens_out = [&](const FfnKind& kind) {
    const bool is_divided_whole = cutting.ep > 1 && kind.by == CutBy::expert_ffn;
    const bool is_fixed =
        is_divided_whole || is_shared_whole(spec, cutting, kind) || is_even(spec, cutting, kind.by);
    return is_fixed ? 0 : bytes_cut_by(spec, kind.by);
  };
  const FfnKind& largest = *std::ranges::max_element(kFfnKinds, {}, evens_out);
  for (const FfnKind& kind : kFfnKinds) {
    if (ffn_size(spec, kind.by) == 0) continue;
    if (&kind == &largest && evens_out(kind) > 0) {
      balance_ffn(spec, kind, ranks);
      continue;
    }
    const bool is_whole = is_shared_whole(spec, cutting, kind);
    split_evenly_by(spec, kind, unit_of(spec, cutting, kind.by),
                    is_whole ? 1 : ranks_of(cutting, kind.by), ranks);
  }
}

// Neighbours cut the same experts.
void split_experts(const ModelSpec& spec, const Cutting& cutting, std::vector<RankShard>& ranks) {
  if (spec.experts.count == 0) return;
  const auto split = split_evenly(spec.experts.count, cutting.ep);
  const auto sharing = static_cast<std::size_t>(ranks_of(cutting, CutBy::expert_ffn));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].experts = split[rank / sharing].size();
  }
}

// A tower with fewer heads than ranks is whole on every rank.
void split_vision(const ModelSpec& spec, std::vector<RankShard>& ranks) {
  if (!spec.vision) return;
  const bool is_whole = spec.vision->heads < std::ssize(ranks);
  const auto heads = split_evenly(spec.vision->heads, std::ssize(ranks));
  const auto ffn = split_evenly(spec.vision->ffn, std::ssize(ranks));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].vision_heads = is_whole ? Range{0, spec.vision->heads} : heads[rank];
    ranks[rank].vision_ffn = is_whole ? Range{0, spec.vision->ffn} : ffn[rank];
  }
}

void split_vocab(const ModelSpec& spec, std::vector<RankShard>& ranks) {
  const auto split = split_evenly(ceil_div(spec.vocab, kPackedRows), std::ssize(ranks));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].vocab = scaled(split[rank], kPackedRows, spec.vocab);
  }
}

MatrixPlan matrix(std::string name, std::vector<WeightSlice> parts) {
  MatrixPlan plan{std::move(name), std::move(parts), 0, 0};
  for (const WeightSlice& part : plan.parts) {
    plan.packed_bytes += round_up(slice_bytes(part), kWeightAlignment);
  }
  return plan;
}

// A matrix whose columns the ranks share.
MatrixPlan shared_matrix(std::string name, const WeightSlice& part, std::int64_t segment_cols) {
  MatrixPlan plan = matrix(std::move(name), {part});
  plan.segment_cols = segment_cols;
  return plan;
}

WeightSlice whole(const WeightInfo& weight) {
  return {&weight, {0, weight.rows()}, {0, weight.cols()}};
}

WeightSlice with_rows(const WeightInfo& weight, Range rows) {
  return {&weight, rows, {0, weight.cols()}};
}

WeightSlice with_cols(const WeightInfo& weight, Range cols) {
  return {&weight, {0, weight.rows()}, cols};
}

const WeightInfo& named(const ModelSpec& spec, std::string_view name) {
  const WeightInfo* weight = spec.weights.find(name);
  CHECK(weight != nullptr);
  return *weight;
}

VectorPlan vector(std::string name, std::vector<VectorSlice> parts) {
  VectorPlan plan{std::move(name), std::move(parts), 0};
  for (const VectorSlice& part : plan.parts) {
    plan.bytes += part.range.size() * static_cast<Bytes>(sizeof(float));
  }
  plan.bytes = round_up(plan.bytes, kWeightAlignment);
  return plan;
}

void add_vector(const WeightInfo& weight, RankWeights& result) {
  result.vectors.push_back(vector(weight.name, {{&weight, {0, weight.cols()}}}));
}

// Beside those that every model's layers have.
std::vector<std::string_view> norms_of_layer(const ModelSpec& spec) {
  std::vector<std::string_view> names;
  if (spec.has_qk_norms) names.insert(names.end(), {"attn_q_norm", "attn_k_norm"});
  if (spec.has_post_norms) names.insert(names.end(), {"post_attention_norm", "post_ffw_norm"});
  return names;
}

// Of the matrices whose columns the ranks share.
struct Segments {
  std::int64_t attn_output = 0;
  std::int64_t ffn_down = 0;
};

void add_layer(const ModelSpec& spec, const RankShard& shard, const Segments& segments,
               std::int64_t layer, RankWeights& result) {
  const auto weight = [&](std::string_view name) -> const WeightInfo& {
    return layer_weight(spec, layer, name);
  };
  const auto name = [&](std::string_view matrix_name) {
    return fmt::format("blk.{}.{}", layer, matrix_name);
  };
  const Range q = {shard.heads.begin * spec.head_dim, shard.heads.end * spec.head_dim};
  const Range kv = {shard.kv_heads.begin * spec.head_dim, shard.kv_heads.end * spec.head_dim};
  add_vector(weight("attn_norm"), result);
  add_vector(weight("ffn_norm"), result);
  for (const std::string_view norm : norms_of_layer(spec)) add_vector(weight(norm), result);
  if (spec.has_qkv_bias) {
    const auto bias = [&](std::string_view of) -> const WeightInfo& {
      return named(spec, fmt::format("blk.{}.{}.bias", layer, of));
    };
    result.vectors.push_back(vector(
        name("qkv.bias"), {{&bias("attn_q"), q}, {&bias("attn_k"), kv}, {&bias("attn_v"), kv}}));
  }
  result.matrices.push_back(
      matrix(name("qkv"), {with_rows(weight("attn_q"), q), with_rows(weight("attn_k"), kv),
                           with_rows(weight("attn_v"), kv)}));
  result.matrices.push_back(shared_matrix(name("attn_output"), with_cols(weight("attn_output"), q),
                                          segments.attn_output));
  result.matrices.push_back(matrix(name("gate_up"), {with_rows(weight("ffn_gate"), shard.ffn),
                                                     with_rows(weight("ffn_up"), shard.ffn)}));
  result.matrices.push_back(
      shared_matrix(name("ffn_down"), with_cols(weight("ffn_down"), shard.ffn), segments.ffn_down));
}

Result<ShardPlan> cut_model(const ModelSpec& spec, const Cutting& cutting) {
  const HeadUnits units = head_units(spec);
  TRY(check_ranks(spec, units, cutting));
  ShardPlan plan;
  plan.ranks.resize(static_cast<std::size_t>(cutting.tp));
  if (cutting.tp <= spec.kv_heads) {
    split_groups(spec, units, plan.ranks);
  } else {
    split_within_groups(spec, units, plan.ranks);
  }
  split_ffn(spec, cutting, plan.ranks);
  split_experts(spec, cutting, plan.ranks);
  split_vision(spec, plan.ranks);
  split_vocab(spec, plan.ranks);
  return plan;
}

}  // namespace

Result<ShardPlan> plan_shards(const ModelSpec& spec, std::int64_t tp) {
  return cut_model(spec, {.tp = tp});
}

Result<ShardPlan> plan_device_shards(const ModelSpec& spec, std::int64_t tp, std::int64_t ep) {
  return cut_model(spec, {.tp = tp, .ep = ep, .for_kernels = false});
}

Bytes slice_bytes(const WeightSlice& slice) {
  return packed_bytes(slice.weight->dtype, slice.rows.size(), slice.cols.size());
}

Bytes RankWeights::bytes() const {
  Bytes sum = 0;
  for (const MatrixPlan& plan : matrices) sum += plan.packed_bytes;
  for (const VectorPlan& plan : vectors) sum += plan.bytes;
  return sum;
}

RankWeights rank_weights(const ModelSpec& spec, const RankShard& shard) {
  RankWeights result;
  const WeightInfo& embedding = named(spec, "token_embd.weight");
  result.matrices.push_back(matrix(spec.tied_head ? "head" : "embedding", {whole(embedding)}));
  const Segments segments{.attn_output = head_units(spec).head_unit * value_dim(spec),
                          .ffn_down = ffn_unit_columns(spec, CutBy::ffn)};
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    add_layer(spec, shard, segments, layer, result);
  }
  add_vector(named(spec, "output_norm.weight"), result);
  if (!spec.tied_head) {
    const WeightInfo& output = named(spec, "output.weight");
    result.matrices.push_back(matrix("head", {with_rows(output, shard.vocab)}));
  }
  if (spec.has_rope_freqs) add_vector(named(spec, "rope_freqs.weight"), result);
  return result;
}

}  // namespace plimsoll
