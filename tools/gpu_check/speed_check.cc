#include "tools/gpu_check/speed_check.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "shared/base/clock.h"
#include "tools/gpu_check/bench_backend.h"
#include "tools/tiny_model/quantise.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kKvHeads = 8;
constexpr std::int64_t kHeadDim = 128;
constexpr std::int64_t kRowsQuantised = 16;  // that a matrix repeats

class Meter {
 public:
  Meter(Backend& backend, const SpeedSize& size) : on_(backend), size_(size) {}

  Result<std::vector<Speed>> run() {
    const std::int64_t rows = std::max(size_.prompt, size_.requests);
    TRY(on_.set_limits({.tokens_max = rows,
                        .cols_max = std::max(size_.hidden, size_.ffn),
                        .rows_max = size_.ffn,
                        .context_max = size_.context,
                        .heads_max = kHeads,
                        .head_dim = kHeadDim}));
    in_ = TRY(on_.take_f32(rows, size_.hidden));
    out_ = TRY(on_.take_f32(rows, std::max(size_.ffn, (kHeads + 2 * kKvHeads) * kHeadDim)));
    probe_ = TRY(on_.take_f32(1, 1));
    for (const DType dtype : {DType::q4_1, DType::q8_0, DType::bf16}) TRY(measure_linear(dtype));
    TRY(measure_attention());
    return std::move(speeds_);
  }

 private:
  // Rows that repeat are as good as others: what is read is what counts.
  Result<std::vector<PackedMatrix>> make_matrices(DType dtype) {
    std::mt19937_64 random(1);
    const auto few = quantise(dtype, random_floats(kRowsQuantised * size_.hidden, 0.02F, random));
    std::vector<std::byte> stored;
    for (std::int64_t row = 0; row < size_.ffn; row += kRowsQuantised) {
      stored.insert(stored.end(), few.begin(), few.end());
    }
    std::vector<PackedMatrix> matrices;
    for (std::int64_t i = 0; i < size_.matrices; ++i) {
      matrices.push_back(TRY(on_.pack(dtype, size_.ffn, size_.hidden, stored)));
    }
    return matrices;
  }

  Status measure_linear(DType dtype) {
    const std::vector<PackedMatrix> matrices = TRY(make_matrices(dtype));
    const std::string type(dtype_info(dtype).name);
    for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{8}, size_.prompt}) {
      const auto all = [&] {
        for (const PackedMatrix& matrix : matrices) {
          on_.backend().linear({.in = in_.slice_rows(0, tokens),
                                .norm = {},
                                .weight = &matrix,
                                .out = f32_view(out_.f32(), tokens, size_.ffn)});
        }
      };
      const double count = static_cast<double>(size_.matrices);
      const double elements = static_cast<double>(size_.ffn * size_.hidden);
      TRY(measure(
          {.name = "linear " + type + ", " + std::to_string(tokens) + " tokens",
           .seconds = 0,
           .bytes = count * static_cast<double>(packed_bytes(dtype, size_.ffn, size_.hidden)),
           .products = count * elements * static_cast<double>(tokens)},
          all));
    }
    return {};
  }

  // A token of each request, all with the longest context.
  Status measure_attention() {
    KvCache cache{.blocks = size_.requests * ceil_div(size_.context, kKvBlockTokens),
                  .layers = 1,
                  .kv_heads = kKvHeads,
                  .head_dim = kHeadDim};
    cache.data = TRY(on_.take(cache.blocks * cache.block_bytes())).data();
    const TensorView turn = TRY(on_.take_f32(size_.context, kHeadDim / 2));
    const std::int64_t blocks = ceil_div(size_.context, kKvBlockTokens);
    blocks_.resize(static_cast<std::size_t>(cache.blocks));
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = static_cast<std::int32_t>(i);
    for (std::int64_t i = 0; i < size_.requests; ++i) {
      sequences_.push_back(
          {.row = i,
           .tokens = 1,
           .position = size_.context - 1,
           .blocks = std::span(blocks_).subspan(static_cast<std::size_t>(i * blocks),
                                                static_cast<std::size_t>(blocks))});
    }
    const TensorView result = TRY(on_.take_f32(size_.requests, kHeads * kHeadDim));
    AttentionCall call;
    call.cache = &cache;
    call.heads = kHeads;
    call.scale = 0.088F;
    call.qkv = f32_view(out_.f32(), size_.requests, (kHeads + 2 * kKvHeads) * kHeadDim);
    call.sequences = sequences_;
    call.rope = {
        .cos = turn.f32(), .sin = turn.f32(), .positions = size_.context, .half_dim = kHeadDim / 2};
    call.out = result;
    const double tokens = static_cast<double>(size_.requests * size_.context);
    return measure({.name = "attention, " + std::to_string(size_.requests) + " requests of " +
                            std::to_string(size_.context) + " tokens",
                    .seconds = 0,
                    .bytes = tokens * kKvHeads * kHeadDim * 2 * 2,
                    .products = tokens * kHeads * kHeadDim * 2},
                   [&] { on_.backend().attention(call); });
  }

  // The first run is thrown away.
  Status measure(Speed speed, const std::function<void()>& work) {
    std::vector<double> times;
    for (int i = 0; i <= size_.repeats; ++i) {
      const TimePoint begin = now();
      work();
      TRY(on_.get(probe_));
      if (i > 0) times.push_back(to_seconds(now() - begin));
    }
    std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
    speed.seconds = times[times.size() / 2];
    speeds_.push_back(std::move(speed));
    return {};
  }

  BenchBackend on_;
  SpeedSize size_;
  TensorView in_, out_, probe_;
  std::vector<std::int32_t> blocks_;
  std::vector<SequenceRows> sequences_;
  std::vector<Speed> speeds_;
};

}  // namespace

SpeedSize large_size() {
  return {.hidden = 4096,
          .ffn = 14'336,
          .matrices = 16,
          .prompt = 2048,
          .requests = 32,
          .context = 4096,
          .repeats = 5};
}

SpeedSize small_size() {
  return {.hidden = 256,
          .ffn = 64,
          .matrices = 2,
          .prompt = 17,
          .requests = 2,
          .context = 64,
          .repeats = 1};
}

Result<std::vector<Speed>> measure_speeds(Backend& backend, const SpeedSize& size) {
  return Meter(backend, size).run();
}

}  // namespace plimsoll
