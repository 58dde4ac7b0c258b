#include "tools/gpu_check/kernel_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "tools/gpu_check/bench_backend.h"
#include "tools/tiny_model/quantise.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kCols = 512;
constexpr std::int64_t kRows = 80;
constexpr std::int64_t kHeads = 8;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kHeadDim = 64;
constexpr std::int64_t kContext = 320;
constexpr std::int64_t kPrompt = 290;  // two splits of attention
constexpr std::int64_t kPositions = kContext;
constexpr float kEps = 1e-5F;
constexpr double kLinearTolerance = 0.005;
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

struct LinearInputs {
  Values in, norm;
  std::int64_t tokens = 0;
};

Operation linear(DType dtype, const std::vector<std::byte>& stored, const LinearInputs& inputs) {
  return [=](BenchBackend& on) -> Result<Values> {
    const PackedMatrix weight = TRY(on.pack(dtype, kRows, kCols, stored));
    const float* in = TRY(on.put(inputs.in));
    const TensorView out = TRY(on.take_f32(inputs.tokens, kRows));
    on.backend().linear({.in = f32_view(const_cast<float*>(in), inputs.tokens, kCols),
                         .norm = {TRY(on.put(inputs.norm)), kEps},
                         .weight = &weight,
                         .out = out});
    return on.get(out);
  };
}

Operation gated(const std::vector<std::byte>& gate, const std::vector<std::byte>& up,
                const LinearInputs& inputs) {
  return [=](BenchBackend& on) -> Result<Values> {
    PackedMatrix weight = TRY(on.pack(DType::q4_1, kRows, kCols, gate));
    const PackedMatrix second = TRY(on.pack(DType::q4_1, kRows, kCols, up));
    weight.parts.push_back(second.parts[0]);
    weight.rows += second.rows;
    const float* in = TRY(on.put(inputs.in));
    const TensorView out = TRY(on.take_f32(inputs.tokens, kRows));
    on.backend().linear({.in = f32_view(const_cast<float*>(in), inputs.tokens, kCols),
                         .norm = {},
                         .weight = &weight,
                         .epilogue = Epilogue::silu_mul,
                         .out = out});
    return on.get(out);
  };
}

// A prompt, then a token after it.
Operation attention(const Values& qkv, std::int64_t window) {
  return [=](BenchBackend& on) -> Result<Values> {
    constexpr std::int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim;
    KvCache cache{.blocks = ceil_div(kContext, kKvBlockTokens),
                  .layers = 1,
                  .kv_heads = kKvHeads,
                  .head_dim = kHeadDim};
    cache.data = TRY(on.take(cache.blocks * cache.block_bytes())).data();
    Values cos(kPositions * kHeadDim / 2);
    Values sin(cos.size());
    for (std::size_t i = 0; i < cos.size(); ++i) {
      cos[i] = std::cos(0.01F * static_cast<float>(i));
      sin[i] = std::sin(0.01F * static_cast<float>(i));
    }
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(cache.blocks));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i] = static_cast<std::int32_t>(blocks.size() - 1 - i);
    }
    AttentionCall call;
    call.cache = &cache;
    call.heads = kHeads;
    call.scale = 0.125F;
    call.window = window;
    call.rope = {.cos = TRY(on.put(cos)),
                 .sin = TRY(on.put(sin)),
                 .positions = kPositions,
                 .half_dim = kHeadDim / 2};
    auto* rows = const_cast<float*>(TRY(on.put(qkv)));
    Values all;
    for (const auto& [position, tokens] :
         {std::pair{std::int64_t{0}, kPrompt}, std::pair{kPrompt, std::int64_t{1}}}) {
      const SequenceRows sequence{
          .row = 0, .tokens = tokens, .position = position, .blocks = blocks};
      call.qkv = f32_view(rows + position * kQkv, tokens, kQkv);
      call.sequences = std::span(&sequence, 1);
      call.out = TRY(on.take_f32(tokens, kHeads * kHeadDim));
      on.backend().attention(call);
      const Values part = TRY(on.get(call.out));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
}

class Checker {
 public:
  Checker(Backend& tested, Backend& reference) : tested_(tested), reference_(reference) {}

  Status start() {
    const BackendLimits limits{.tokens_max = kPrompt,
                               .cols_max = kCols,
                               .rows_max = 2 * kRows,
                               .context_max = kContext,
                               .heads_max = kHeads,
                               .head_dim = kHeadDim};
    TRY(tested_.set_limits(limits));
    return reference_.set_limits(limits);
  }

  void check(std::string name, double tolerance, const Operation& operation) {
    KernelCheck result{.name = std::move(name), .worst = 0, .tolerance = tolerance, .error = {}};
    const Result<Values> want = operation(reference_);
    const Result<Values> got = operation(tested_);
    if (!want || !got) {
      result.error = want ? got.error().message : want.error().message;
    } else {
      result.worst = worst_share(*got, *want);
    }
    results.push_back(std::move(result));
  }

  std::vector<KernelCheck> results;

 private:
  BenchBackend tested_;
  BenchBackend reference_;
};

}  // namespace

std::vector<KernelCheck> check_kernels(Backend& tested, Backend& reference, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Checker checker(tested, reference);
  if (const Status started = checker.start(); !started) {
    return {{.name = "workspace", .worst = 0, .tolerance = 0, .error = started.error().message}};
  }
  const auto stored = [&](DType dtype) {
    return quantise(dtype, random_floats(kRows * kCols, 0.05F, random));
  };
  const auto inputs = [&](std::int64_t tokens) {
    return LinearInputs{.in = random_floats(tokens * kCols, 1, random),
                        .norm = random_floats(kCols, 1, random),
                        .tokens = tokens};
  };
  for (const DTypeInfo& info : all_dtypes()) {
    const std::vector<std::byte> weight = stored(info.dtype);
    const std::string type(info.name);
    checker.check("embed " + type, kExactTolerance, embed(info.dtype, weight));
    for (const std::int64_t tokens : {1, 5, 40}) {  // a kernel each
      checker.check("linear " + type + ", " + std::to_string(tokens) + " tokens", kLinearTolerance,
                    linear(info.dtype, weight, inputs(tokens)));
    }
  }
  checker.check("gate and up, 5 tokens", kLinearTolerance,
                gated(stored(DType::q4_1), stored(DType::q4_1), inputs(5)));
  const Values qkv = random_floats((kPrompt + 1) * (kHeads + 2 * kKvHeads) * kHeadDim, 1, random);
  checker.check("attention", kExactTolerance, attention(qkv, 0));
  checker.check("attention with a window", kExactTolerance, attention(qkv, 100));
  return std::move(checker.results);
}

}  // namespace plimsoll
