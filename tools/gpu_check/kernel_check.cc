#include "tools/gpu_check/kernel_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tools/gpu_check/bench_backend.h"
#include "tools/tiny_model/quantise.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kCols = 512;
constexpr std::int64_t kRows = 80;
constexpr std::int64_t kHeads = 8;
constexpr std::int64_t kHeadDim = 64;  // of what has no attention, and of a step
constexpr std::int64_t kContext = 320;
constexpr std::int64_t kPrompt = 290;  // two splits of attention
constexpr std::int64_t kPositions = kContext;
constexpr float kEps = 1e-5F;
constexpr double kLinearTolerance = 0.002;
constexpr double kExactTolerance = 1e-3;

using Values = std::vector<float>;
using Operation = std::function<Result<Values>(BenchBackend&)>;

// Of the same length, or something is wrong.
double worst_share(const Values& got, const Values& want) {
  double largest = 0;
  double worst = got.size() == want.size() ? 0 : std::numeric_limits<double>::infinity();
  for (const float value : want) largest = std::max(largest, std::fabs(double{value}));
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const double difference = std::fabs(double{got[i]} - double{want[i]});
    worst = difference <= worst ? worst : difference;  // not a number is worst
  }
  return std::isnan(worst) ? std::numeric_limits<double>::infinity()
                           : worst / std::max(largest, 1e-9);
}

Operation embed(DType dtype, const std::vector<std::byte>& stored) {
  return [=](BenchBackend& on) -> Result<Values> {
    const PackedMatrix table = TRY(on.pack(dtype, kRows, kCols, stored));
    const std::vector<std::int32_t> ids = {0, 17, kRows - 1};
    const TensorView out = TRY(on.take_f32(std::ssize(ids), kCols));
    on.backend().embed(table, ids, 1.5F, out);
    return on.get(out);
  };
}

std::vector<std::byte> random_weight(DType dtype, std::int64_t rows, std::mt19937_64& random) {
  return quantise(dtype, random_floats(rows * kCols, 0.05F, random));
}

struct LinearCase {
  std::vector<DType> parts;
  std::int64_t tokens = 1;
  Epilogue epilogue = Epilogue::store;
  std::int64_t segment_cols = 0;
  std::int64_t row_begin = 0, row_end = 0;
};

// What `partial` has summed in f64.
Result<Values> get_sums(BenchBackend& on, const SumsView& sums) {
  const Values words =
      TRY(on.get(f32_view(reinterpret_cast<float*>(sums.data), sums.rows, 2 * sums.cols)));
  std::vector<double> values(words.size() / 2);
  std::memcpy(values.data(), words.data(), words.size() * sizeof(float));
  return Values(values.begin(), values.end());
}

Operation linear(const LinearCase& one, std::mt19937_64& random) {
  std::vector<std::vector<std::byte>> stored;
  for (const DType dtype : one.parts) stored.push_back(random_weight(dtype, kRows, random));
  const Values in = random_floats(one.tokens * kCols, 1, random);
  Values norm = random_floats(kCols, 0.2F, random);
  for (float& weight : norm) weight += 1;  // no outliers: CPUs round those twice, GPUs once
  const std::int64_t rows = one.row_end != 0         ? one.row_end - one.row_begin
                            : is_gated(one.epilogue) ? kRows
                                                     : kRows * std::ssize(one.parts);
  const Values before = random_floats(one.tokens * rows, 1, random);
  return [=](BenchBackend& on) -> Result<Values> {
    PackedMatrix weight{.parts = {}, .rows = 0, .cols = kCols, .segment_cols = one.segment_cols};
    for (std::size_t i = 0; i < stored.size(); ++i) {
      weight.parts.push_back(TRY(on.pack(one.parts[i], kRows, kCols, stored[i])).parts[0]);
      weight.rows += kRows;
    }
    LinearCall call{.in = f32_view(const_cast<float*>(TRY(on.put(in))), one.tokens, kCols),
                    .norm = {TRY(on.put(norm)), kEps},
                    .weight = &weight,
                    .row_begin = one.row_begin,
                    .row_end = one.row_end,
                    .epilogue = one.epilogue,
                    .out = f32_view(const_cast<float*>(TRY(on.put(before))), one.tokens, rows)};
    if (one.epilogue == Epilogue::partial) {
      const auto memory = TRY(on.take(one.tokens * rows * static_cast<Bytes>(sizeof(double))));
      call.out = {};
      call.sums = sums_view(reinterpret_cast<double*>(memory.data()), one.tokens, rows);
    }
    on.backend().linear(call);
    return one.epilogue == Epilogue::partial ? get_sums(on, call.sums) : on.get(call.out);
  };
}

Operation add_normed(std::int64_t tokens, std::mt19937_64& random) {
  const Values in = random_floats(tokens * kCols, 1, random);
  const Values before = random_floats(tokens * kCols, 1, random);
  const Values norm = random_floats(kCols, 1, random);
  return [=](BenchBackend& on) -> Result<Values> {
    const TensorView from = f32_view(const_cast<float*>(TRY(on.put(in))), tokens, kCols);
    const TensorView out = f32_view(const_cast<float*>(TRY(on.put(before))), tokens, kCols);
    on.backend().add_normed(from, {TRY(on.put(norm)), kEps}, out);
    Values all = TRY(on.get(out));
    const Values cleared = TRY(on.get(from));
    all.insert(all.end(), cleared.begin(), cleared.end());
    return all;
  };
}

Operation copy_rows(std::mt19937_64& random) {
  const Values in = random_floats(5 * kCols, 1, random);
  return [=](BenchBackend& on) -> Result<Values> {
    const TensorView from = f32_view(const_cast<float*>(TRY(on.put(in))), 5, kCols);
    const std::vector<std::int32_t> rows = {4, 0, 2};
    const TensorView out = TRY(on.take_f32(std::ssize(rows), kCols));
    on.backend().copy_rows(from, rows, out);
    return on.get(out);
  };
}

struct AttentionCase {
  std::vector<std::int64_t> prompts;  // tokens of each request; kPrompt together
  std::int64_t heads = kHeads, kv_heads = 2, head_dim = kHeadDim;
  std::int64_t window = 0;
  bool has_bias = false, has_norms = false, interleaved = false;
  std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// KV, tables and weights of a layer of attention, wherever a backend has them.
class AttentionLayer {
 public:
  AttentionLayer(const AttentionCase& one, std::mt19937_64& random) : case_(one) {
    for (std::int64_t i = 0; i < kPositions * one.head_dim / 2; ++i) {
      cos_.push_back(std::cos(0.01F * static_cast<float>(i)));
      sin_.push_back(std::sin(0.01F * static_cast<float>(i)));
    }
    if (one.has_bias) bias_ = random_floats(one.width(), 0.5F, random);
    if (one.has_norms) norm_ = random_floats(one.head_dim, 1, random);
    const std::int64_t blocks = ceil_div(kContext, kKvBlockTokens) * std::ssize(one.prompts);
    for (std::int64_t i = blocks; i > 0; --i) blocks_.push_back(static_cast<std::int32_t>(i - 1));
  }

  // REQUIRES: `call` and this live as long as it is used.
  Status prepare(BenchBackend& on, KvCache& cache, AttentionCall& call) const {
    cache = {.blocks = std::ssize(blocks_),
             .layers = 1,
             .kv_heads = case_.kv_heads,
             .head_dim = case_.head_dim};
    cache.data = TRY(on.take(cache.blocks * cache.block_bytes())).data();
    call.cache = &cache;
    call.heads = case_.heads;
    call.scale = 1 / std::sqrt(static_cast<float>(case_.head_dim));
    call.window = case_.window;
    call.rope = {.cos = TRY(on.put(cos_)),
                 .sin = TRY(on.put(sin_)),
                 .positions = kPositions,
                 .half_dim = case_.head_dim / 2,
                 .interleaved = case_.interleaved};
    if (case_.has_bias) call.bias = TRY(on.put(bias_));
    if (case_.has_norms) {
      call.q_norm = {TRY(on.put(norm_)), kEps};
      call.k_norm = call.q_norm;
    }
    return {};
  }

  // Of request i.
  std::span<const std::int32_t> blocks(std::size_t i) const {
    const std::size_t each = blocks_.size() / case_.prompts.size();
    return std::span(blocks_).subspan(i * each, each);
  }

 private:
  AttentionCase case_;
  Values cos_, sin_, bias_, norm_;
  std::vector<std::int32_t> blocks_;
};

// Prompts, then a token after each.
Operation attention(const AttentionCase& one, std::mt19937_64& random) {
  const AttentionLayer layer(one, random);
  const std::int64_t count = std::ssize(one.prompts);
  const Values qkv = random_floats((kPrompt + count) * one.width(), 1, random);
  return [=](BenchBackend& on) -> Result<Values> {
    KvCache cache;
    AttentionCall call;
    TRY(layer.prepare(on, cache, call));
    auto* rows = const_cast<float*>(TRY(on.put(qkv)));
    Values all;
    for (const bool is_decode : {false, true}) {
      std::vector<SequenceRows> sequences;
      std::int64_t row = 0;
      for (std::size_t i = 0; i < one.prompts.size(); ++i) {
        sequences.push_back({.row = row,
                             .tokens = is_decode ? 1 : one.prompts[i],
                             .position = is_decode ? one.prompts[i] : 0,
                             .blocks = layer.blocks(i)});
        row += sequences.back().tokens;
      }
      call.qkv = f32_view(rows + (is_decode ? kPrompt * one.width() : 0), row, one.width());
      call.sequences = sequences;
      call.out = TRY(on.take_f32(row, one.heads * one.head_dim));
      on.backend().attention(call);
      const Values part = TRY(on.get(call.out));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
}

// A decode step of two requests, three times with other tokens: recorded, where the backend can.
Operation decode_steps(std::mt19937_64& random) {
  constexpr std::int64_t kRequests = 2;
  const AttentionCase one{.prompts = {kPrompt - 1, 1}};
  const AttentionLayer layer(one, random);
  const std::vector<std::byte> table = random_weight(DType::q8_0, kRows, random);
  const std::vector<std::byte> qkv = random_weight(DType::q4_1, one.width(), random);
  const Values norm = random_floats(kCols, 1, random);
  return [=](BenchBackend& on) -> Result<Values> {
    Backend& backend = on.backend();
    const PackedMatrix embedding = TRY(on.pack(DType::q8_0, kRows, kCols, table));
    const PackedMatrix weight = TRY(on.pack(DType::q4_1, one.width(), kCols, qkv));
    const Norm normed{TRY(on.put(norm)), kEps};
    KvCache cache;
    AttentionCall call;
    TRY(layer.prepare(on, cache, call));
    const TensorView hidden = TRY(on.take_f32(kRequests, kCols));
    call.qkv = TRY(on.take_f32(kRequests, one.width()));
    call.out = TRY(on.take_f32(kRequests, kHeads * kHeadDim));
    const TensorView last = TRY(on.take_f32(kRequests, kHeads * kHeadDim));
    Values to(static_cast<std::size_t>(kRequests * kHeads * kHeadDim));
    std::vector<std::int32_t> ids = {3, 7};
    const std::vector<std::int32_t> logit_rows = {0, 1};
    std::vector<SequenceRows> sequences;
    for (std::int64_t i = 0; i < kRequests; ++i) {
      sequences.push_back({.row = i,
                           .tokens = 1,
                           .position = 0,
                           .blocks = layer.blocks(static_cast<std::size_t>(i))});
    }
    const auto step = [&]() -> Result<TensorView> {
      backend.embed(embedding, ids, 1, hidden);
      backend.linear({.in = hidden, .norm = normed, .weight = &weight, .out = call.qkv});
      call.sequences = sequences;
      backend.attention(call);
      backend.copy_rows(call.out, logit_rows, last);
      return backend.read(last, to);
    };
    const auto called = [&]() -> Status {
      TRY(step());
      return {};
    };
    if (backend.can_record()) TRY(backend.record(kRequests, called));
    Values all;
    for (std::int64_t at = 0; at < 3; ++at) {
      for (std::int64_t i = 0; i < kRequests; ++i) {
        ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>((17 * at + 5 * i) % kRows);
        sequences[static_cast<std::size_t>(i)].position = at;
      }
      const TensorView got =
          TRY(backend.can_record()
                  ? backend.replay({.ids = ids, .sequences = sequences, .logit_rows = logit_rows})
                  : step());
      all.insert(all.end(), got.f32(), got.f32() + got.rows * got.cols);
    }
    return all;
  };
}

struct Check {
  std::string name;
  double tolerance = 0;
  std::int64_t head_dim = kHeadDim;
  std::function<Operation(std::mt19937_64&)> make;
};

void add_linear_checks(std::vector<Check>& checks) {
  const auto add = [&](std::string name, const LinearCase& one) {
    checks.push_back({.name = std::move(name) + ", " + std::to_string(one.tokens) + " tokens",
                      .tolerance = kLinearTolerance,
                      .make = [one](std::mt19937_64& random) { return linear(one, random); }});
  };
  for (const DTypeInfo& info : all_dtypes()) {
    const std::string type(info.name);
    for (const std::int64_t tokens : {1, 5, 40}) {  // a kernel each
      add("linear " + type, {.parts = {info.dtype}, .tokens = tokens});
    }
  }
  for (const DType dtype : {DType::q4_1, DType::q6_k, DType::bf16}) {
    const std::string type(dtype_info(dtype).name);
    for (const std::int64_t tokens : {1, 5, 17, 128}) {
      if (dtype == DType::q6_k && tokens != 5) continue;
      add("add " + type, {.parts = {dtype}, .tokens = tokens, .epilogue = Epilogue::add});
      add("partial of segments " + type,
          {.parts = {dtype}, .tokens = tokens, .epilogue = Epilogue::partial, .segment_cols = 256});
      add("rows 7 to 61 " + type,
          {.parts = {dtype}, .tokens = tokens, .row_begin = 7, .row_end = 61});
      add("gate (SiLU) and up " + type,
          {.parts = {dtype, dtype}, .tokens = tokens, .epilogue = Epilogue::silu_mul});
      add("gate (GELU) and up " + type,
          {.parts = {dtype, dtype}, .tokens = tokens, .epilogue = Epilogue::gelu_mul});
    }
  }
  for (const std::int64_t tokens : {1, 40}) {
    add("three types in one", {.parts = {DType::q4_k, DType::q6_k, DType::f16}, .tokens = tokens});
  }
}

std::vector<Check> all_checks() {
  std::vector<Check> checks;
  for (const DTypeInfo& info : all_dtypes()) {
    checks.push_back({.name = "embed " + std::string(info.name),
                      .tolerance = kExactTolerance,
                      .make = [dtype = info.dtype](std::mt19937_64& random) {
                        return embed(dtype, random_weight(dtype, kRows, random));
                      }});
  }
  add_linear_checks(checks);
  for (const std::int64_t tokens : {1, 40}) {
    checks.push_back(
        {.name = "add normed, " + std::to_string(tokens) + " tokens",
         .tolerance = kExactTolerance,
         .make = [tokens](std::mt19937_64& random) { return add_normed(tokens, random); }});
  }
  checks.push_back({.name = "copy rows", .tolerance = 0, .make = [](std::mt19937_64& random) {
                      return copy_rows(random);
                    }});
  const std::pair<const char*, AttentionCase> attentions[] = {
      {"attention", {.prompts = {kPrompt}}},
      {"attention with a window", {.prompts = {kPrompt}, .window = 100}},
      {"attention of three requests", {.prompts = {40, 100, 150}}},
      {"attention, heads of 128 with bias, interleaved",
       {.prompts = {kPrompt}, .head_dim = 128, .has_bias = true, .interleaved = true}},
      {"attention, heads of 128 with norms, three requests",
       {.prompts = {40, 100, 150}, .kv_heads = 8, .head_dim = 128, .has_norms = true}},
      {"attention, heads of 256 with norms and a window",
       {.prompts = {kPrompt},
        .heads = 4,
        .kv_heads = 1,
        .head_dim = 256,
        .window = 100,
        .has_norms = true}},
  };
  for (const auto& [name, one] : attentions) {
    checks.push_back(
        {.name = name,
         .tolerance = kExactTolerance,
         .head_dim = one.head_dim,
         .make = [one = one](std::mt19937_64& random) { return attention(one, random); }});
  }
  checks.push_back({.name = "recorded steps of two requests",
                    .tolerance = kLinearTolerance,
                    .make = [](std::mt19937_64& random) { return decode_steps(random); }});
  return checks;
}

Status set_limits(BenchBackend& on, std::int64_t head_dim) {
  return on.set_limits({.tokens_max = kPrompt,
                        .cols_max = kCols,
                        .rows_max = 2 * kRows,
                        .context_max = kContext,
                        .heads_max = kHeads,
                        .head_dim = head_dim});
}

}  // namespace

bool check_kernels(Backend& tested, Backend& reference, const KernelCheckRun& run) {
  BenchBackend tested_on(tested);
  BenchBackend reference_on(reference);
  std::int64_t head_dim = 0;
  const std::vector<Check> checks = all_checks();
  for (std::size_t i = run.from; i < checks.size(); ++i) {
    const Check& check = checks[i];
    run.begins(i, check.name);
    KernelCheck result{
        .index = i, .name = check.name, .worst = 0, .tolerance = check.tolerance, .error = {}};
    std::mt19937_64 random(run.seed * 1'000'003 + i);  // the same from wherever a run begins
    const Operation operation = check.make(random);
    Status limits;
    if (head_dim != check.head_dim) {
      limits = set_limits(reference_on, check.head_dim);
      if (limits) limits = set_limits(tested_on, check.head_dim);
      head_dim = check.head_dim;
    }
    const Result<Values> want = limits ? operation(reference_on) : limits.error();
    const Result<Values> got = limits ? operation(tested_on) : limits.error();
    if (want && got) {
      result.worst = worst_share(*got, *want);
    } else {
      result.error = want ? got.error().message : want.error().message;
    }
    run.ended(result);
    // A device that has failed fails ever after: what follows is for another process.
    if (!result.error.empty()) return false;
  }
  return true;
}

}  // namespace plimsoll
